"""The scan in several processes: on this machine, or as tasks of a Ray cluster; the result is the same, bit for bit.

Knows the tasks of the engine's scan and nothing of metrics.

* `packing`   objects as bytes, their large arrays out of band; `tasks` packs what a scan needs
* `runners`   the runner for the options `jobs` and `engine`
* `local`     worker processes; `worker` is what they run
* `cluster`   Ray tasks
"""
