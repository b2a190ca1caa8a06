"""From PTX text to a program: steps, accesses, facts of the data flow."""
