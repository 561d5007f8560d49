"""When each GPU idled, and which cause takes which nanoseconds of it."""
