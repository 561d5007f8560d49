"""Programs whose idle time is made on purpose, recorded on a GPU: is it named as it was made?"""
