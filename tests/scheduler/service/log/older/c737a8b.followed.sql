BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0011');
CREATE TABLE archive (
	name VARCHAR(16) NOT NULL, 
	first BIGINT NOT NULL, 
	last BIGINT NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (name, first)
);
CREATE TABLE decisions (
	seq BIGINT NOT NULL, 
	event BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	vc VARCHAR(128) NOT NULL, 
	action VARCHAR(16) NOT NULL, 
	reason VARCHAR(48) NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "decisions" VALUES(0,2,1790000130.5,'3','main','wait','LimitReached','{"action":"wait","evidence":[["free_in_s",3469.5]],"free":0,"held_by":["2"],"job_id":"3","limit":8,"need":8,"position":1,"priority":-8589935592.0,"reason":"LimitReached","seq":0,"time":1790000130.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(1,2,1790000130.5,'4','main','wait','LimitReached','{"action":"wait","evidence":[["free_in_s",3469.5]],"free":0,"held_by":["2"],"job_id":"4","limit":8,"need":1,"position":2,"priority":-8589935492.0,"reason":"LimitReached","seq":1,"time":1790000130.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(2,2,1790000130.5,'6','main','wait','LimitReached','{"action":"wait","evidence":[["free_in_s",3469.5]],"free":0,"held_by":["2"],"job_id":"6","limit":8,"need":8,"position":4,"priority":-800.0,"reason":"LimitReached","seq":2,"time":1790000130.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(3,2,1790000130.5,'7','main','wait','LimitReached','{"action":"wait","evidence":[["free_in_s",3469.5]],"free":0,"held_by":["2"],"job_id":"7","limit":8,"need":8,"position":3,"priority":-8589935292.0,"reason":"LimitReached","seq":3,"time":1790000130.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(4,7,1790000380.5,'4','main','wait','GpusBusy','{"action":"wait","estimate_s":593.3628553476136,"evidence":[["p10_s",104.84395955659714],["p50_s",651.9823941074727],["p90_s",5149.181351159906],["mean_s",1572.3217737386672],["free_in_s",1347.8]],"free":0,"held_by":["2"],"job_id":"4","limit":8,"need":1,"position":1,"priority":89500588.38785535,"reason":"GpusBusy","score":{"bundle":"coldstart","inputs":["0.936501"],"intercept":6.387490000447563,"terms":[0.0,0.0,0.0,0.0],"value":6.387490000447563},"seq":4,"time":1790000380.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(5,7,1790000380.5,'8','main','wait','GpusBusy','{"action":"wait","estimate_s":593.3628553476136,"evidence":[["p10_s",104.84395955659714],["p50_s",651.9823941074727],["p90_s",5149.181351159906],["mean_s",1572.3217737386672],["free_in_s",1347.8]],"free":0,"held_by":["2"],"job_id":"8","limit":8,"need":1,"position":2,"priority":89500609.38785535,"reason":"GpusBusy","score":{"bundle":"coldstart","inputs":["0.936501"],"intercept":6.387490000447563,"terms":[0.0,0.0,0.0,0.0],"value":6.387490000447563},"seq":5,"time":1790000380.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(6,7,1790000380.5,'7','main','wait','GpusBusy','{"action":"wait","estimate_s":855.0053749626217,"evidence":[["p10_s",151.43718121446918],["p50_s",939.429628269841],["p90_s",7416.325761460604],["mean_s",2264.9085821881717],["free_in_s",1347.8]],"free":0,"held_by":["2"],"job_id":"7","limit":8,"need":8,"position":3,"priority":89502413.34539436,"reason":"GpusBusy","score":{"bundle":"coldstart","inputs":["0.903092"],"intercept":6.387490000447563,"terms":[0.36478665483640604,0.0,0.0,0.0],"value":6.7522766552839695},"seq":6,"time":1790000380.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(7,11,1790000560.5,'4','main','start','ExclusiveGpus','{"action":"start","estimate_s":593.3628553476136,"evidence":[["p10_s",104.84395955659714],["p50_s",651.9823941074727],["p90_s",5149.181351159906],["mean_s",1572.3217737386672]],"free":7,"gpus":[1],"job_id":"4","limit":8,"need":1,"nodes":[0],"priority":89500588.38785535,"reason":"ExclusiveGpus","score":{"bundle":"coldstart","inputs":["0.936501"],"intercept":6.387490000447563,"terms":[0.0,0.0,0.0,0.0],"value":6.387490000447563},"seq":7,"time":1790000560.5,"vc":"main"}');
INSERT INTO "decisions" VALUES(8,11,1790000560.5,'9','main','start','ExclusiveGpus','{"action":"start","estimate_s":315.9300420722724,"evidence":[["p10_s",55.438807125235535],["p50_s",347.18753523199183],["p90_s",2745.2133234223065],["mean_s",837.9369077456768]],"free":3,"gpus":[15],"job_id":"9","limit":8,"need":4,"nodes":[1],"priority":89500656.88508415,"reason":"ExclusiveGpus","score":{"bundle":"coldstart","inputs":["0.900588"],"intercept":6.387490000447563,"terms":[-0.6288089383945179,0.0,0.0,0.0],"value":5.7586810620530455},"seq":8,"time":1790000560.5,"vc":"main"}');
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	job_id VARCHAR(64) DEFAULT '' NOT NULL, 
	actor VARCHAR(128) DEFAULT '' NOT NULL, 
	cause BIGINT DEFAULT '0' NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1790000000.5,'genesis','','',0,'{"backend":"slurm-followed","cluster":{"gpu_memory_mib":24576.0,"gpu_type":"","gpus_per_node":4,"groups":[["main",[["",1,4,null,["n1"]],["",1,4,null,["n2"]]]]],"name":"slurm","vcs":[["main",2]]},"names":["n1","n2"],"pace":1.0,"partition":null,"policy":"slurm","settings":{},"site":"","start":1790000000.5,"version":""}');
INSERT INTO "events" VALUES(2,1790000130.5,'advised','','',0,'{"decisions":4,"left_out":1,"not_modelled":[],"running":1,"stretch":0.4,"waiting":4}');
INSERT INTO "events" VALUES(3,1790000160.5,'advised','','',0,'{"decisions":0,"left_out":1,"not_modelled":[],"running":1,"stretch":0.4,"waiting":4}');
INSERT INTO "events" VALUES(4,1790000190.5,'advised','','',0,'{"decisions":0,"left_out":1,"not_modelled":[],"running":1,"stretch":0.4,"waiting":4}');
INSERT INTO "events" VALUES(5,1790000220.5,'advised','','',0,'{"decisions":0,"left_out":1,"not_modelled":[],"running":1,"stretch":0.4,"waiting":3}');
INSERT INTO "events" VALUES(6,1790000000.5,'genesis','','',0,'{"backend":"slurm-followed","cluster":{"gpu_memory_mib":24576.0,"gpu_type":"","gpus_per_node":4,"groups":[["main",[["",1,4,null,["n1"]],["",1,4,null,["n2"]]]]],"name":"slurm","vcs":[["main",2]]},"names":["n1","n2"],"pace":1.0,"partition":null,"policy":"pellucid","settings":{"ageing":0.05,"backfill":1.0,"borrowing":null,"busy_above":0.85,"fairness":{"half_life_s":604800.0,"users":{},"vcs":{},"weight":0.0},"gpu_exponent":0.5,"gpu_types":{"counted_on":null,"speeds":{},"wait_for_faster":true},"learns_speeds":true,"max_wait_s":172800.0,"overload":1.0,"pack_first_above":1.8,"partner_searches":16,"predict_again_s":3600.0,"profile_above":0.3,"sharing":{"max_gpus":8,"memory_margin_mib":0.0,"mode":null,"unmeasured":false}},"site":"","start":1790000000.5,"version":""}');
INSERT INTO "events" VALUES(7,1790000380.5,'advised','','',0,'{"decisions":3,"left_out":2,"not_modelled":[],"running":1,"stretch":0.4,"waiting":3}');
INSERT INTO "events" VALUES(8,1790000380.5,'ordered','8','',0,'{"comment":"pellucid: GpusBusy: needs 1 GPU, 0 of 8 are free","dry":false}');
INSERT INTO "events" VALUES(9,1790000440.5,'advised','','',0,'{"decisions":0,"left_out":2,"not_modelled":[],"running":1,"stretch":0.4,"waiting":3}');
INSERT INTO "events" VALUES(10,1790000500.5,'advised','','',0,'{"decisions":0,"left_out":2,"not_modelled":[],"running":1,"stretch":0.4,"waiting":3}');
INSERT INTO "events" VALUES(11,1790000560.5,'advised','','',0,'{"decisions":2,"left_out":2,"not_modelled":[],"running":0,"stretch":0.4,"waiting":3}');
CREATE TABLE forecasts (
	job_id VARCHAR(64) NOT NULL, 
	basis VARCHAR(16) NOT NULL, 
	made_at FLOAT NOT NULL, 
	start_p50 FLOAT, 
	start_p90 FLOAT, 
	end_p50 FLOAT, 
	end_p90 FLOAT, 
	why_not VARCHAR(256) DEFAULT '' NOT NULL, start_p10 FLOAT, 
	PRIMARY KEY (job_id, basis)
);
INSERT INTO "forecasts" VALUES('3','latest',1790000190.5,NULL,NULL,NULL,NULL,'in no future had it started after 7 days',NULL);
INSERT INTO "forecasts" VALUES('6','latest',1790000220.5,NULL,NULL,NULL,NULL,'in no future had it started after 7 days',NULL);
INSERT INTO "forecasts" VALUES('4','submission',1790000380.5,1.79000058472992277149e+09,1.79000518909377336496e+09,1.79000241519284677502e+09,1.7900076081145868301e+09,'',1.79000046967249298096e+09);
INSERT INTO "forecasts" VALUES('8','submission',1790000380.5,1.79000058472992277149e+09,1.79000518909377336496e+09,1.79000137111207771297e+09,1.79000664508704662326e+09,'',1.79000046967249298096e+09);
INSERT INTO "forecasts" VALUES('7','submission',1790000380.5,1.79000254348733305932e+09,1.79001743886080598834e+09,1.79000452535077309609e+09,1.79002298639612650874e+09,'',1.79000081195850253108e+09);
INSERT INTO "forecasts" VALUES('2','latest',1790000500.5,1790000000.5,1790000000.5,1.79000114130447506898e+09,1790003600.5,'',1790000000.5);
INSERT INTO "forecasts" VALUES('8','latest',1790000500.5,1.79000109892713189126e+09,1.7900051300748095512e+09,1.79000283383726286885e+09,1.79001233316079711921e+09,'',1.7900005704953353405e+09);
INSERT INTO "forecasts" VALUES('4','latest',1790000560.5,1790000560.5,1.79000056541824698443e+09,1.79000097834448814392e+09,1.79000571459959793092e+09,'',1790000560.5);
INSERT INTO "forecasts" VALUES('9','latest',1790000560.5,1790000560.5,1.79000056541824698443e+09,1.79000084797859668724e+09,1.79000655909435462949e+09,'',1790000560.5);
INSERT INTO "forecasts" VALUES('7','latest',1790000560.5,1.79000157992816424368e+09,1.79000950693229365353e+09,1.79000581384713101386e+09,1.79002059711026859285e+09,'',1.79000070579221057893e+09);
INSERT INTO "forecasts" VALUES('9','submission',1790000560.5,1790000560.5,1.79000056541824698443e+09,1.79000084797859668724e+09,1.79000655909435462949e+09,'',1790000560.5);
CREATE TABLE idempotency (
	actor VARCHAR(128) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (actor, "key")
);
CREATE TABLE jobs (
	job_id VARCHAR(64) NOT NULL, 
	submitted_seq BIGINT NOT NULL, 
	owner VARCHAR(128) NOT NULL, 
	vc VARCHAR(128) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	gpus INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	reason VARCHAR(48) DEFAULT '' NOT NULL, 
	priority INTEGER DEFAULT '0' NOT NULL, 
	"key" FLOAT, 
	estimate_s FLOAT, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	nodes TEXT DEFAULT '[]' NOT NULL, 
	partner VARCHAR(64), 
	submitted_at FLOAT NOT NULL, 
	queued_at FLOAT, 
	started_at FLOAT, 
	ended_at FLOAT, 
	state VARCHAR(16), 
	exit_code INTEGER, 
	detail TEXT DEFAULT '' NOT NULL, 
	cancel_asked BOOLEAN DEFAULT '0' NOT NULL, 
	updated_seq BIGINT NOT NULL, hold VARCHAR(16) DEFAULT '' NOT NULL, held_by VARCHAR(128) DEFAULT '' NOT NULL, held_at FLOAT, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('1',1789999900,'u1','main','a',4,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":4,"job_id":"1","memory_mib":null,"name":"a","owner":"u1","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u1","vc":"main","workdir":""}','ended','',0,NULL,8.49710776984559856828e+02,0,'[]',NULL,1789999900.5,1789999900.5,1789999910.5,1789999990.5,'completed',NULL,'Slurm started it',0,2,'','',NULL);
INSERT INTO "jobs" VALUES('3',1789999900,'u3','main','a',8,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":8,"job_id":"3","memory_mib":null,"name":"a","owner":"u3","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u3","vc":"main","workdir":""}','ended','LimitReached',0,-8589935592.0,3.45304457939079725284e+02,0,'[]',NULL,1789999900.5,1789999900.5,NULL,1790000190.5,'cancelled',NULL,'',0,5,'','',NULL);
INSERT INTO "jobs" VALUES('7',1789999900,'u7','main','seven',8,'{"command":["sbatch","seven"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":8,"job_id":"7","memory_mib":null,"name":"seven","owner":"u7","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u7","vc":"main","workdir":""}','queued','GpusBusy',0,8.95024133453943580417e+07,8.5500537496262165862e+02,0,'[]',NULL,1789999900.5,1789999900.5,NULL,NULL,NULL,NULL,'Slurm says ReqNodeNotAvail',0,7,'','',NULL);
INSERT INTO "jobs" VALUES('5',1789999900,'u5','main','a',8,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":8,"job_id":"5","memory_mib":null,"name":"a","owner":"u5","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u5","vc":"main","workdir":""}','submitted','',0,NULL,NULL,0,'[]',NULL,1789999900.5,NULL,NULL,NULL,NULL,NULL,'Slurm says JobHeldUser: it is held by its user; `scontrol release 5` lets it go.
Pellucid: held in Slurm (JobHeldUser).',0,7,'','',NULL);
INSERT INTO "jobs" VALUES('6',1789999900,'u6','main','a',8,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":8,"job_id":"6","memory_mib":null,"name":"a","owner":"u6","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u6","vc":"main","workdir":""}','submitted','',0,NULL,NULL,0,'[]',NULL,1789999900.5,NULL,NULL,NULL,NULL,NULL,'Slurm says Dependency: it waits for afterok:2.
Pellucid: waits for another job in Slurm (Dependency).',0,7,'','',NULL);
INSERT INTO "jobs" VALUES('8',1790000440,'u8','main','a',1,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":1,"job_id":"8","memory_mib":null,"name":"a","owner":"u8","priority":0,"profile":false,"share":true,"submitted_at":1790000440.5,"time_limit_s":null,"user":"u8","vc":"main","workdir":""}','ended','GpusBusy',0,8.95006153878553509673e+07,5.93362855347613617597e+02,0,'[]',NULL,1790000440.5,1789999900.5,NULL,1790000560.5,NULL,NULL,'Slurm says None: it was not looked at yet.',0,11,'','',NULL);
INSERT INTO "jobs" VALUES('4',1789999900,'u4','main','a',1,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":1,"job_id":"4","memory_mib":null,"name":"a","owner":"u4","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":null,"user":"u4","vc":"main","workdir":""}','queued','ExclusiveGpus',0,8.95005883878553509715e+07,5.93362855347613617597e+02,0,'[]',NULL,1789999900.5,1789999900.5,NULL,NULL,NULL,NULL,'Slurm says QOSMaxJobsPerUserLimit',0,11,'','',NULL);
INSERT INTO "jobs" VALUES('9',1790000500,'u9','main','a',4,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":4,"job_id":"9","memory_mib":null,"name":"a","owner":"u9","priority":0,"profile":false,"share":true,"submitted_at":1790000500.5,"time_limit_s":null,"user":"u9","vc":"main","workdir":""}','queued','ExclusiveGpus',0,8.95006568850841522245e+07,3.15930042072272385675e+02,0,'[]',NULL,1790000500.5,1789999900.5,NULL,NULL,NULL,NULL,'Slurm says None: it was not looked at yet.',0,11,'','',NULL);
INSERT INTO "jobs" VALUES('2',1789999900,'u2','main','a',8,'{"command":["sbatch","a"],"cpus":1.0,"environment":{},"gpu_type":null,"gpus":8,"job_id":"2","memory_mib":null,"name":"a","owner":"u2","priority":0,"profile":false,"share":true,"submitted_at":1789999900.5,"time_limit_s":3600.0,"user":"u2","vc":"main","workdir":""}','ended','',0,89500993.5850221,3.53044281526710733497e+02,0,'[[0,[0,1,2,3]],[1,[0,1,2,3]]]',NULL,1789999900.5,1789999900.5,1790000000.5,1790000500.5,'completed',NULL,'Slurm started it',0,11,'','',NULL);
CREATE TABLE leases (
	name VARCHAR(32) NOT NULL, 
	holder VARCHAR(128) NOT NULL, 
	term BIGINT NOT NULL, 
	expires_at FLOAT NOT NULL, for_s FLOAT DEFAULT '0' NOT NULL, beats BIGINT DEFAULT '0' NOT NULL, beat_at FLOAT DEFAULT '0' NOT NULL, boot VARCHAR(64) DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('decider','at 1790000320.5',2,1790000570.5,10.0,10,1790000560.5,'by hand');
CREATE TABLE links (
	id VARCHAR(16) NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	token_id VARCHAR(36) NOT NULL, 
	made_at FLOAT NOT NULL, 
	until FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE nodes (
	node INTEGER NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	vc VARCHAR(128) NOT NULL, 
	gpus INTEGER NOT NULL, 
	gpu_type VARCHAR(64) DEFAULT '' NOT NULL, 
	open BOOLEAN DEFAULT '1' NOT NULL, gpu_memory_mib FLOAT DEFAULT '24576' NOT NULL, profiling BOOLEAN DEFAULT 0 NOT NULL, change TEXT DEFAULT '' NOT NULL, reason TEXT DEFAULT '' NOT NULL, actor VARCHAR(128) DEFAULT '' NOT NULL, since FLOAT, 
	PRIMARY KEY (node)
);
INSERT INTO "nodes" VALUES(0,'n1','main',4,'',1,24576.0,0,'','','',NULL);
INSERT INTO "nodes" VALUES(1,'n2','main',4,'',1,24576.0,0,'','','',NULL);
CREATE TABLE payloads (
	job_id VARCHAR(64) NOT NULL, 
	owner VARCHAR(128) NOT NULL, 
	bytes BIGINT NOT NULL, 
	command TEXT NOT NULL, 
	environment TEXT NOT NULL, 
	PRIMARY KEY (job_id)
);
CREATE TABLE questions (
	id VARCHAR(36) NOT NULL, 
	asked_at FLOAT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	answer TEXT, 
	answered_at FLOAT, actor VARCHAR(128) DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE settings (
	seq BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	actor VARCHAR(128) DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	settings TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE tokens (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	hash VARCHAR(128) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	vcs TEXT DEFAULT '[]' NOT NULL, 
	os_user VARCHAR(64) DEFAULT '' NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT, 
	revoked_at FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (hash)
);
CREATE INDEX decisions_by_event ON decisions (event);
CREATE INDEX decisions_by_job ON decisions (job_id, seq);
CREATE INDEX events_by_job ON events (job_id, seq);
CREATE INDEX events_by_kind ON events (kind, seq);
CREATE INDEX jobs_by_owner ON jobs (owner, submitted_seq);
CREATE INDEX jobs_by_phase ON jobs (phase, vc);
CREATE INDEX questions_open ON questions (answered_at, asked_at);
CREATE INDEX jobs_by_owner_phase ON jobs (owner, phase);
CREATE INDEX payloads_by_owner ON payloads (owner, bytes);
COMMIT;
