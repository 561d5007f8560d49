"""How is it shown: to people, to programs, and to the pages of a CI?"""
