"""Why does a finding cost time, how is it changed, and when is it better left alone?"""
