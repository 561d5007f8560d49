"""What to change first, and what that would save?"""
