"""The simulated cluster behind the API: scheduler, controllers and kubelets.

Everything here reacts to changes of the store or to one heap of timers. Nothing polls, and no pod
or node has a task of its own, so that a thousand idle nodes cost almost nothing.
"""
