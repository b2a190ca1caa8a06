"""The behaviour of each PTX instruction; decode.py has the table of families."""
