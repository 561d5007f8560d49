"""What does a finding rest on, and what does a name on the page mean?"""
