"""What was the next compute operation waiting for?"""
