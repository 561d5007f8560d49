"""What bounds a view, a phase or a step?"""
