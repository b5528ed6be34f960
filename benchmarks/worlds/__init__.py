"""Many worlds: are the policy's defaults right for clusters that nobody tuned them on?"""
