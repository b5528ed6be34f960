-- Slurm's job_submit plugin for Pellucid's place mode.
--
-- In the partitions of pellucid.lua every ordinary user's job is held when it comes in, with the
-- GPUs it asks for written down (AdminComment) and taken out of the request: Pellucid sets node and
-- slots once, then releases. What it cannot place is refused with a sentence, and nobody else may
-- change a job there. Everywhere else, and for trusted users, it does nothing.
--
-- Written against Slurm 22.05. An error in here refuses the job: it is never let through.

local folder = debug.getinfo(1, "S").source:match("^@(.*)/") or "/etc/slurm"
local settings = dofile(folder .. "/pellucid.lua")

-- What an unset number looks like depends on its width.
local UNSET = { [0xfe] = true, [0xfffe] = true, [0xfffffffe] = true }

local function number(value)
   if value == nil or UNSET[value] or value >= 0x7fffffffffffffff then
      return nil
   end
   return value
end

local function text(value)
   return value ~= nil and value ~= "" and value or nil
end

local trusted_uids = { [0] = true }
for _, name in ipairs(settings.trusted) do
   local told = io.popen("id -u -- '" .. name .. "'")
   local uid = tonumber(told:read("*l") or "")
   told:close()
   if uid then
      trusted_uids[uid] = true
   else
      slurm.log_error("pellucid.lua: there is no user %s", name)
   end
end

local function trusted(uid)
   return trusted_uids[uid] == true
end

local function any_in(names, set)
   for name in names:gmatch("[^,]+") do
      if set[name] then
         return true
      end
   end
   return false
end

-- The partition Slurm would choose for a job that names none: its reservation's, else the default.
local function chosen_partition(job, part_list)
   local reserved = text(job.reservation) and slurm.reservations[job.reservation]
   if reserved and text(reserved.partition) then
      return reserved.partition
   end
   for name, partition in pairs(part_list) do
      if partition.flag_default ~= 0 then
         return name
      end
   end
   return nil
end

-- "gpu:a100:2", "gres:gpu:2", "gres/gpu=2" or "gpu" -> count and type of GPUs; raises otherwise.
local function gpus_in(request)
   local total, kind = 0, nil
   for item in request:gmatch("[^,]+") do
      local parts = {}
      for part in item:gsub("^gres[:/]", ""):gmatch("[^:=]+") do
         parts[#parts + 1] = part
      end
      if parts[1] ~= "gpu" or #parts > 3 then
         error("only GPUs can be asked for here, with --gpus=N; not " .. item, 0)
      end
      local last = #parts > 1 and parts[#parts]:match("^%d+$")
      local named = parts[2] ~= last and parts[2] or nil
      if #parts == 3 and not last or kind and named ~= kind then
         error("one type of GPU at a time, and a whole number of them; not " .. request, 0)
      end
      kind = named
      total = total + (tonumber(last) or 1)
   end
   return total, kind
end

-- Everything in a request that Pellucid decides itself, or cannot carry out.
local REFUSED = {
   { "req_nodes", text, "Pellucid chooses the nodes: leave out --nodelist" },
   { "exc_nodes", text, "Pellucid chooses the nodes: leave out --exclude" },
   { "shared", number, "GPUs are shared as Pellucid decides: leave out --exclusive, --oversubscribe" },
   { "het_job_offset", number, "heterogeneous jobs cannot be placed: submit the parts as jobs" },
   { "tres_per_socket", text, "ask with --gpus=N instead of --gpus-per-socket" },
   { "ntasks_per_tres", number, "ask with --ntasks instead of --ntasks-per-gpu" },
   { "cpus_per_tres", text, "ask with --cpus-per-task instead of --cpus-per-gpu" },
   { "mem_per_tres", text, "ask with --mem instead of --mem-per-gpu" },
   { "tres_bind", text, "leave out --gpu-bind: the job sees its own GPUs only" },
   { "tres_freq", text, "leave out --gpu-freq: the GPU may be shared" },
}

-- How many GPUs in all, and of which type.
local function wanted(job)
   if job.priority == 0 then
      error("every job here waits for Pellucid: leave out --hold", 0)
   end
   for _, rule in ipairs(REFUSED) do
      local field, read, why = rule[1], rule[2], rule[3]
      if read(job[field]) then
         error(why, 0)
      end
   end
   local nodes, most = number(job.min_nodes) or 1, number(job.max_nodes)
   if most and most ~= nodes then
      error("ask for one number of nodes, not a range", 0)
   end
   local per_node = number(job.ntasks_per_node)
   local tasks = number(job.num_tasks) or (per_node and per_node * nodes) or nodes
   local found, total, kind = 0, 0, nil
   for field, times in pairs({ tres_per_job = 1, tres_per_node = nodes, tres_per_task = tasks }) do
      if text(job[field]) then
         found = found + 1
         local count
         count, kind = gpus_in(job[field])
         total = count * times
      end
   end
   if found > 1 then
      error("ask for GPUs in one way: --gpus=N", 0)
   elseif total == 0 then
      error("this partition is for GPU jobs: ask with --gpus=N, or use another partition", 0)
   end
   return total, kind
end

local function hold(job)
   local gpus, kind = wanted(job)
   for _, field in ipairs({ "tres_per_job", "tres_per_node", "tres_per_task" }) do
      if text(job[field]) then
         job[field] = ""
      end
   end
   job.priority = 0
   job.nice = 0x80000000 -- none: Slurm releases a held job whose nice is changed
   job.requeue = 0 -- a requeued job would start again by itself, on the slots it had
   job.admin_comment = "gpus=" .. gpus .. (kind and " type=" .. kind or "")
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   if trusted(submit_uid) then
      return slurm.SUCCESS
   end
   local partition = text(job_desc.partition) or chosen_partition(job_desc, part_list)
   if partition and not any_in(partition, settings.partitions) then
      return slurm.SUCCESS
   end
   local held, why = pcall(function()
      if not partition or partition:find(",") then
         error("name one partition", 0)
      elseif settings.profiling[partition] then
         error("jobs come to partition " .. partition .. " by Pellucid alone", 0)
      end
      job_desc.partition = partition -- so that nothing chooses another one later
      hold(job_desc)
   end)
   if not held then
      slurm.log_user("Pellucid: %s", tostring(why))
      return slurm.ESLURM_ACCESS_DENIED
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if trusted(modify_uid) then
      return slurm.SUCCESS
   end
   local partitions = (text(job_rec.partition) or "") .. "," .. (text(job_desc.partition) or "")
   if text(job_rec.partition) and not any_in(partitions, settings.partitions) then
      return slurm.SUCCESS
   end
   -- All of it, not a list of fields: what a newer Slurm adds is refused, too.
   slurm.log_info("pellucid: user %d may not change job %d", modify_uid, job_rec.job_id)
   return slurm.ESLURM_ACCESS_DENIED
end

slurm.log_info("pellucid: job_submit.lua loaded")
return slurm.SUCCESS
