"""Is a report within its limits? Pure functions on captures; nothing here needs polars."""
