"""What each PTX instruction does; decode.py has the table of families."""
