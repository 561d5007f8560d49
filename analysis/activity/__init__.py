"""What single copies, collectives, launches and stalls did."""
