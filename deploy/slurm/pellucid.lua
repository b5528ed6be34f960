-- Settings of job_submit.lua, read when slurmctld loads it: after a change, touch job_submit.lua.
return {
   -- Partitions whose jobs Pellucid places. Their nodes may be in no other partition: Slurm keeps
   -- slots and ordinary GPUs apart and would give out the same GPU twice.
   partitions = { main = true, profile = true },

   -- Of these, the ones to which only Pellucid sends jobs: short looks at new commands.
   profiling = { profile = true },

   -- Users beside root who may do everything: the one that `pellucid serve` runs as. Everybody
   -- else is an ordinary user here, operators of Slurm included.
   trusted = { "slurm" },
}
