BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
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
INSERT INTO "decisions" VALUES(0,9,1700000000.0,'toolarge','vc','refuse','InvalidRequest','{"action":"refuse","job_id":"toolarge","limit":8,"need":40,"reason":"InvalidRequest","seq":0,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(1,9,1700000000.0,'failed','vc','profile','ProfilingSlot','{"action":"profile","free":3,"gpus":[1],"job_id":"failed","limit":30,"need":1,"nodes":[2],"reason":"ProfilingSlot","seq":1,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(2,9,1700000000.0,'ended','vc','profile','ProfilingSlot','{"action":"profile","free":1,"gpus":[6],"job_id":"ended","limit":30,"need":2,"nodes":[2],"reason":"ProfilingSlot","seq":2,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(3,9,1700000000.0,'short','vc','wait','AwaitingProfile','{"action":"wait","free":1,"job_id":"short","limit":4,"need":4,"position":1,"reason":"AwaitingProfile","seq":3,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(4,15,1700000000.0,'timeout','vc','enqueue','ProfilingOptedOut','{"action":"enqueue","estimate_s":58.95672659889314,"job_id":"timeout","limit":4,"need":2,"priority":117.91345319778628,"reason":"ProfilingOptedOut","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["2","","90"],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,0.00378505015757135,-0.022983171829466888,0.007199710270133943,-0.007348200454790007],"value":4.093623078663639},"seq":4,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(5,15,1700000000.0,'cancelled','vc','wait','AwaitingProfile','{"action":"wait","free":1,"job_id":"cancelled","limit":4,"need":4,"position":2,"reason":"AwaitingProfile","seq":5,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(6,15,1700000000.0,'timeout','vc','start','ExclusiveGpus','{"action":"start","estimate_s":58.95672659889314,"free":6,"gpus":[3],"job_id":"timeout","limit":8,"need":2,"nodes":[0],"priority":117.91345319778628,"reason":"ExclusiveGpus","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["2","","90"],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,0.00378505015757135,-0.022983171829466888,0.007199710270133943,-0.007348200454790007],"value":4.093623078663639},"seq":6,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(7,18,1700000000.0,'cancelled','vc','cancel','Cancelled','{"action":"cancel","job_id":"cancelled","need":4,"reason":"Cancelled","seq":7,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(8,22,1700000030.0,'ended','vc','enqueue','ProfileComplete','{"action":"enqueue","estimate_s":58.52990899734831,"job_id":"ended","limit":4,"need":2,"priority":117.05981799469662,"reason":"ProfileComplete","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["2","",""],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,-0.0035645617988778727,-0.022983171829466888,-0.0073633400490006025,0.007420241635719321],"value":4.086478858478565},"seq":8,"time":1700000030.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(9,22,1700000030.0,'short','vc','profile','ProfilingSlot','{"action":"profile","free":0,"gpus":[15],"job_id":"short","limit":30,"need":4,"nodes":[2],"reason":"ProfilingSlot","seq":9,"time":1700000030.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(10,22,1700000030.0,'ended','vc','start','ExclusiveGpus','{"action":"start","estimate_s":58.52990899734831,"free":4,"gpus":[12],"job_id":"ended","limit":8,"need":2,"nodes":[0],"priority":117.05981799469662,"reason":"ExclusiveGpus","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["2","",""],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,-0.0035645617988778727,-0.022983171829466888,-0.0073633400490006025,0.007420241635719321],"value":4.086478858478565},"seq":10,"time":1700000030.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(11,31,1700000130.0,'alone','vc','profile','ProfilingSlot','{"action":"profile","free":0,"gpus":[15],"job_id":"alone","limit":30,"need":4,"nodes":[2],"reason":"ProfilingSlot","seq":11,"time":1700000130.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(12,35,1700000160.0,'alone','vc','enqueue','ProfileComplete','{"action":"enqueue","estimate_s":133.1878768816308,"job_id":"alone","limit":4,"need":4,"priority":532.7515075265233,"reason":"ProfileComplete","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":12,"time":1700000160.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(13,35,1700000160.0,'alone','vc','start','ExclusiveGpus','{"action":"start","estimate_s":133.1878768816308,"free":2,"gpus":[15],"job_id":"alone","limit":8,"need":4,"nodes":[1],"priority":532.7515075265233,"reason":"ExclusiveGpus","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":13,"time":1700000160.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(14,38,1700000160.0,'packed','vc','profile','ProfilingSlot','{"action":"profile","free":0,"gpus":[15],"job_id":"packed","limit":30,"need":4,"nodes":[2],"reason":"ProfilingSlot","seq":14,"time":1700000160.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(15,42,1700000190.0,'packed','vc','enqueue','ProfileComplete','{"action":"enqueue","estimate_s":133.1878768816308,"job_id":"packed","limit":4,"need":4,"priority":532.7515075265233,"reason":"ProfileComplete","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":15,"time":1700000190.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(16,42,1700000190.0,'packed','vc','pack','PartnerFound','{"action":"pack","estimate_s":133.1878768816308,"free":2,"gpus":[15],"job_id":"packed","limit":8,"need":4,"nodes":[1],"partner":"alone","priority":532.7515075265233,"reason":"PartnerFound","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":16,"speeds":[0.9825117850035198,0.9825117850035198],"time":1700000190.0,"tree_path":["gpu_util_pct 10 <= 50.144","gpu_util_pct 10 <= 35.1","gpu_util_pct 10 <= 13.248","gpu_util_pct 10 <= 10.32","sharing score 0 (tiny)","partner: gpu_util_pct 10 <= 50.144","partner: gpu_util_pct 10 <= 35.1","partner: gpu_util_pct 10 <= 13.248","partner: gpu_util_pct 10 <= 10.32","partner: sharing score 0 (tiny)"],"vc":"vc"}');
INSERT INTO "decisions" VALUES(17,45,1700000190.0,'other','vc','profile','ProfilingSlot','{"action":"profile","free":0,"gpus":[15],"job_id":"other","limit":30,"need":4,"nodes":[2],"reason":"ProfilingSlot","seq":17,"time":1700000190.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(18,49,1700000220.0,'other','vc','enqueue','ProfileComplete','{"action":"enqueue","estimate_s":133.1878768816308,"job_id":"other","limit":4,"need":4,"priority":532.7515075265233,"reason":"ProfileComplete","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":18,"time":1700000220.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(19,49,1700000220.0,'other','vc','wait','GpusBusy','{"action":"wait","estimate_s":133.1878768816308,"free":2,"job_id":"other","limit":8,"need":4,"position":1,"priority":532.7515075265233,"reason":"GpusBusy","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":19,"time":1700000220.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(20,56,1700000230.0,'lost','vc','enqueue','ProfilingOptedOut','{"action":"enqueue","estimate_s":17.563733428988392,"job_id":"lost","limit":4,"need":1,"priority":17.563733428988392,"reason":"ProfilingOptedOut","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["1","",""],"intercept":4.5183297990740945,"terms":[-1.6390360167180738,0.055862302928775476,-0.0035645617988778727,-0.01243040401042045,-0.005371499402916172,0.007420241635719321],"value":2.921209861708301},"seq":20,"time":1700000230.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(21,56,1700000230.0,'urgent','vc','enqueue','ProfilingSkipped','{"action":"enqueue","estimate_s":381.2050610491996,"job_id":"urgent","limit":4,"need":8,"priority":3049.640488393597,"reason":"ProfilingSkipped","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["8","",""],"intercept":4.5183297990740945,"terms":[1.3856217589677766,0.055862302928775476,-0.0035645617988778727,-0.03214035991241655,0.014428092710396056,0.007420241635719321],"value":5.945957273605469},"seq":21,"time":1700000230.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(22,56,1700000230.0,'waits','vc','profile','ProfilingSlot','{"action":"profile","free":0,"gpus":[15],"job_id":"waits","limit":30,"need":4,"nodes":[2],"reason":"ProfilingSlot","seq":22,"time":1700000230.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(23,56,1700000230.0,'urgent','vc','wait','GpusBusy','{"action":"wait","estimate_s":381.2050610491996,"free":4,"job_id":"urgent","limit":8,"need":8,"position":1,"priority":3049.640488393597,"reason":"GpusBusy","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["8","",""],"intercept":4.5183297990740945,"terms":[1.3856217589677766,0.055862302928775476,-0.0035645617988778727,-0.03214035991241655,0.014428092710396056,0.007420241635719321],"value":5.945957273605469},"seq":23,"time":1700000230.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(24,56,1700000230.0,'lost','vc','start','ExclusiveGpus','{"action":"start","estimate_s":17.563733428988392,"free":3,"gpus":[1],"job_id":"lost","limit":8,"need":1,"nodes":[0],"priority":17.563733428988392,"reason":"ExclusiveGpus","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["1","",""],"intercept":4.5183297990740945,"terms":[-1.6390360167180738,0.055862302928775476,-0.0035645617988778727,-0.01243040401042045,-0.005371499402916172,0.007420241635719321],"value":2.921209861708301},"seq":24,"time":1700000230.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(25,61,1700000260.0,'waits','vc','enqueue','ProfileComplete','{"action":"enqueue","estimate_s":133.1878768816308,"job_id":"waits","limit":4,"need":4,"priority":532.7515075265233,"reason":"ProfileComplete","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":25,"time":1700000260.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(26,61,1700000260.0,'waits','vc','wait','GpusBusy','{"action":"wait","estimate_s":133.1878768816308,"free":3,"job_id":"waits","limit":8,"need":4,"position":3,"priority":532.7515075265233,"reason":"GpusBusy","score":{"bundle":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778727,0.06001970237514547,-0.003873381734794048,0.007420241635719321],"value":4.899240884254568},"seq":26,"time":1700000260.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(27,63,1700000291.0,'looked-at','vc','profile','ProfilingSlot','{"action":"profile","free":2,"gpus":[3],"job_id":"looked-at","limit":30,"need":2,"nodes":[2],"reason":"ProfilingSlot","seq":27,"time":1700000291.0,"vc":"vc"}');
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
INSERT INTO "events" VALUES(1,1700000000.0,'genesis','','',0,'{"backend":"simulated","cluster":{"gpu_memory_mib":24576.0,"gpu_type":"V100","gpus_per_node":4,"name":"cluster","vcs":[["vc",3]]},"pace":1.0,"partition":{"known_s":604800.0,"limit_s":30.0,"max_gpus":4,"nodes":[["vc",1]],"scale_from":""},"policy":"lucid","site":"","start":1700000000.0,"version":"test"}');
INSERT INTO "events" VALUES(2,1700000000.0,'lease','','',0,'{"holder":"one","term":1,"version":"0.1.0+ec3b0482b3a4"}');
INSERT INTO "events" VALUES(3,1700000060.0,'lease','','',0,'{"holder":"after 1700000060.0","term":2,"version":"0.1.0+ec3b0482b3a4"}');
INSERT INTO "events" VALUES(4,1700000000.0,'submitted','short','ann',0,'{"checkpoint_s":30.0,"command":["sleep","20"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"short","memory_mib":null,"name":"short","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(5,1700000000.0,'submitted','ended','bob',0,'{"checkpoint_s":30.0,"command":["sleep","200"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"ended","memory_mib":null,"name":"ended","owner":"bob","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(6,1700000000.0,'submitted','failed','ann',0,'{"checkpoint_s":30.0,"command":["false"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"failed","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(7,1700000000.0,'submitted','toolarge','ann',0,'{"checkpoint_s":30.0,"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":40,"job_id":"toolarge","memory_mib":null,"name":"toolarge","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(8,1700000000.0,'bundle','','',0,'{"digest":"034891f3fa3204b9c9040f94bba3ffdabfc782e916d88649e0e6023bd4f22a5e","path":"/srv/pellucid/champion"}');
INSERT INTO "events" VALUES(9,1700000000.0,'decided','','',8,'{"count":4,"digest":"e6ae5517c99c89a46a0149c76f4e47a7b0dc0ca04f5ae790cec78790697895c0","now":1700000000.0,"upto":8}');
INSERT INTO "events" VALUES(10,1700000000.0,'started','failed','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(11,1700000000.0,'started','ended','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(12,1700000000.0,'decided','','',11,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000000.0,"upto":11}');
INSERT INTO "events" VALUES(13,1700000000.0,'submitted','timeout','ann',0,'{"checkpoint_s":30.0,"command":["sleep","500"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"timeout","memory_mib":null,"name":"timeout","owner":"ann","priority":0,"profile":false,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":90.0,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(14,1700000000.0,'submitted','cancelled','ann',0,'{"checkpoint_s":30.0,"command":["sleep","50"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"cancelled","memory_mib":null,"name":"cancelled","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(15,1700000000.0,'decided','','',14,'{"count":3,"digest":"290f5571e0100b714490882cafd4844b6140346f064e914c0fe0d3d9939eaef2","now":1700000000.0,"upto":14}');
INSERT INTO "events" VALUES(16,1700000000.0,'cancel_asked','cancelled','op',0,'{}');
INSERT INTO "events" VALUES(17,1700000000.0,'started','timeout','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(18,1700000000.0,'decided','','',17,'{"count":1,"digest":"2e925cd0c5b32fd4cf03e25378ee1c1f3593fd843417c26be21299fb7fe6377e","now":1700000000.0,"upto":17}');
INSERT INTO "events" VALUES(19,1700000000.0,'ended','failed','',0,'{"attempt":1,"detail":"exit code 1","exit_code":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":0.0,"state":"failed"}');
INSERT INTO "events" VALUES(20,1700000000.0,'decided','','',19,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000000.0,"upto":19}');
INSERT INTO "events" VALUES(21,1700000030.0,'profiled','ended','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":30.0}');
INSERT INTO "events" VALUES(22,1700000030.0,'decided','','',21,'{"count":3,"digest":"0ebd0c195fa8efa77ceecaca505fddc8f64bc423aa61d0bcb10b5ddcc588224c","now":1700000030.0,"upto":21}');
INSERT INTO "events" VALUES(23,1700000030.0,'started','short','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(24,1700000030.0,'started','ended','',0,'{"attempt":2}');
INSERT INTO "events" VALUES(25,1700000030.0,'decided','','',24,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000030.0,"upto":24}');
INSERT INTO "events" VALUES(26,1700000050.0,'ended','short','',0,'{"attempt":1,"exit_code":0,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":20.0,"state":"completed"}');
INSERT INTO "events" VALUES(27,1700000050.0,'decided','','',26,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000050.0,"upto":26}');
INSERT INTO "events" VALUES(28,1700000090.0,'ended','timeout','',0,'{"attempt":1,"detail":"ran for its 90 s","ran_s":90.0,"state":"timeout"}');
INSERT INTO "events" VALUES(29,1700000090.0,'decided','','',28,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000090.0,"upto":28}');
INSERT INTO "events" VALUES(30,1700000090.0,'submitted','alone','ann',0,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"alone","memory_mib":null,"name":"alone","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000090.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(31,1700000130.0,'decided','','',30,'{"count":1,"digest":"f41cd4b88f6a1128463ac71ac9ed6a4ebc5551fb85abfb11932b084171b234c4","now":1700000130.0,"upto":30}');
INSERT INTO "events" VALUES(32,1700000130.0,'started','alone','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(33,1700000130.0,'decided','','',32,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000130.0,"upto":32}');
INSERT INTO "events" VALUES(34,1700000160.0,'profiled','alone','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":30.0}');
INSERT INTO "events" VALUES(35,1700000160.0,'decided','','',34,'{"count":2,"digest":"9c36fc0638a2ad31cf42dea3985a46bf270802f66a50a6412b90e2a16cff0911","now":1700000160.0,"upto":34}');
INSERT INTO "events" VALUES(36,1700000160.0,'submitted','packed','bob',0,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"packed","memory_mib":null,"name":"packed","owner":"bob","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000160.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(37,1700000160.0,'started','alone','',0,'{"attempt":2}');
INSERT INTO "events" VALUES(38,1700000160.0,'decided','','',37,'{"count":1,"digest":"f154f7f65d79ef9a622e4816e5a5afd9018efa66fd0b916067884c3a4c184e3b","now":1700000160.0,"upto":37}');
INSERT INTO "events" VALUES(39,1700000160.0,'started','packed','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(40,1700000160.0,'decided','','',39,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000160.0,"upto":39}');
INSERT INTO "events" VALUES(41,1700000190.0,'profiled','packed','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":30.0}');
INSERT INTO "events" VALUES(42,1700000190.0,'decided','','',41,'{"count":2,"digest":"c446fe525a980254880ae82abcde146a1870f88254376b6982fe8f0cd362875d","now":1700000190.0,"upto":41}');
INSERT INTO "events" VALUES(43,1700000190.0,'submitted','other','eve',0,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"other","memory_mib":null,"name":"other","owner":"eve","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000190.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(44,1700000190.0,'started','packed','',0,'{"attempt":2}');
INSERT INTO "events" VALUES(45,1700000190.0,'decided','','',44,'{"count":1,"digest":"c2be217f7a551579d15afacf014b2d6c1cbd8ce415b4419d0af87bceb467b834","now":1700000190.0,"upto":44}');
INSERT INTO "events" VALUES(46,1700000190.0,'started','other','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(47,1700000190.0,'decided','','',46,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000190.0,"upto":46}');
INSERT INTO "events" VALUES(48,1700000220.0,'profiled','other','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":30.0}');
INSERT INTO "events" VALUES(49,1700000220.0,'decided','','',48,'{"count":2,"digest":"6d9613aecfa4e6e00d66ccaa3f5d8d56e441b27412c01014525f59fc4c7a0df4","now":1700000220.0,"upto":48}');
INSERT INTO "events" VALUES(50,1700000220.0,'submitted','lost','ann',0,'{"checkpoint_s":30.0,"command":["sleep","900"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"lost","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":false,"resumable":false,"share":true,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(51,1700000220.0,'node_set','','op',0,'{"node":1,"open":false}');
INSERT INTO "events" VALUES(52,1700000220.0,'submitted','waits','bob',0,'{"checkpoint_s":30.0,"command":["sleep","300"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"waits","memory_mib":null,"name":"waits","owner":"bob","priority":0,"profile":true,"resumable":false,"share":false,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(53,1700000220.0,'submitted','urgent','ann',0,'{"checkpoint_s":30.0,"command":["sleep","100"],"cpus":null,"environment":{},"gpu_type":null,"gpus":8,"job_id":"urgent","memory_mib":null,"name":"urgent","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(54,1700000220.0,'priority_set','urgent','op',0,'{"priority":5}');
INSERT INTO "events" VALUES(55,1700000230.0,'ended','ended','',0,'{"attempt":2,"exit_code":0,"ran_s":200.0,"state":"completed"}');
INSERT INTO "events" VALUES(56,1700000230.0,'decided','','',55,'{"count":5,"digest":"0f5182c591b56386b261d2c63acffcefc352396f49be7a55dd10933af82dc0af","now":1700000230.0,"upto":55}');
INSERT INTO "events" VALUES(57,1700000230.0,'started','waits','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(58,1700000230.0,'started','lost','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(59,1700000230.0,'decided','','',58,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000230.0,"upto":58}');
INSERT INTO "events" VALUES(60,1700000260.0,'profiled','waits','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0},"ran_s":30.0}');
INSERT INTO "events" VALUES(61,1700000260.0,'decided','','',60,'{"count":2,"digest":"506d4d7f9ef44fe32df31b0410fc30278748397a9ab2dd7436a8292a85d7d6c5","now":1700000260.0,"upto":60}');
INSERT INTO "events" VALUES(62,1700000290.0,'submitted','looked-at','ann',0,'{"checkpoint_s":30.0,"command":["sleep","600"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"looked-at","memory_mib":null,"name":"looked-at","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000290.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(63,1700000291.0,'decided','','',62,'{"count":1,"digest":"fe2d90c8fb1229a73ab1a80bb594685addc4a8df65fc3dde5779c3f93d46e238","now":1700000291.0,"upto":62}');
INSERT INTO "events" VALUES(64,1700000291.0,'started','looked-at','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(65,1700000291.0,'decided','','',64,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000291.0,"upto":64}');
INSERT INTO "events" VALUES(66,1700000291.0,'submitted','fresh','eve',0,'{"checkpoint_s":30.0,"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"fresh","memory_mib":null,"name":"fresh","owner":"eve","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000291.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
CREATE TABLE forecasts (
	job_id VARCHAR(64) NOT NULL, 
	basis VARCHAR(16) NOT NULL, 
	made_at FLOAT NOT NULL, 
	start_p50 FLOAT, 
	start_p90 FLOAT, 
	end_p50 FLOAT, 
	end_p90 FLOAT, 
	why_not VARCHAR(256) DEFAULT '' NOT NULL, 
	PRIMARY KEY (job_id, basis)
);
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
	updated_seq BIGINT NOT NULL, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('short',4,'ann','vc','short',4,'{"checkpoint_s":30.0,"command":["sleep","20"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"short","memory_mib":null,"name":"short","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ProfilingSlot',0,NULL,NULL,1,'[]',NULL,1700000000.0,NULL,1700000030.0,1700000050.0,'completed',0,'',0,27);
INSERT INTO "jobs" VALUES('ended',5,'bob','vc','ended',2,'{"checkpoint_s":30.0,"command":["sleep","200"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"ended","memory_mib":null,"name":"ended","owner":"bob","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,1.1705981799469661553e+02,5.85299089973483077642e+01,2,'[]',NULL,1700000000.0,1700000030.0,1700000030.0,1700000230.0,'completed',0,'',0,56);
INSERT INTO "jobs" VALUES('failed',6,'ann','vc','',1,'{"checkpoint_s":30.0,"command":["false"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"failed","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ProfilingSlot',0,NULL,NULL,1,'[]',NULL,1700000000.0,NULL,1700000000.0,1700000000.0,'failed',1,'exit code 1',0,20);
INSERT INTO "jobs" VALUES('toolarge',7,'ann','vc','toolarge',40,'{"checkpoint_s":30.0,"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":40,"job_id":"toolarge","memory_mib":null,"name":"toolarge","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','refused','InvalidRequest',0,NULL,NULL,0,'[]',NULL,1700000000.0,NULL,NULL,1700000000.0,NULL,NULL,'asks for 40 GPUs; this virtual cluster has 8',0,9);
INSERT INTO "jobs" VALUES('timeout',13,'ann','vc','timeout',2,'{"checkpoint_s":30.0,"command":["sleep","500"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"timeout","memory_mib":null,"name":"timeout","owner":"ann","priority":0,"profile":false,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":90.0,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,1.17913453197786282093e+02,5.89567265988931410447e+01,1,'[]',NULL,1700000000.0,1700000000.0,1700000000.0,1700000090.0,'timeout',NULL,'ran for its 90 s',0,29);
INSERT INTO "jobs" VALUES('cancelled',14,'ann','vc','cancelled',4,'{"checkpoint_s":30.0,"command":["sleep","50"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"cancelled","memory_mib":null,"name":"cancelled","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','cancelled','Cancelled',0,NULL,NULL,0,'[]',NULL,1700000000.0,NULL,NULL,1700000000.0,'cancelled',NULL,'',1,18);
INSERT INTO "jobs" VALUES('alone',30,'ann','vc','alone',4,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"alone","memory_mib":null,"name":"alone","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000090.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','ExclusiveGpus',0,5.32751507526523255349e+02,1.33187876881630813837e+02,2,'[[1,[0,1,2,3]]]','packed',1700000090.0,1700000160.0,1700000160.0,NULL,NULL,NULL,'',0,42);
INSERT INTO "jobs" VALUES('packed',36,'bob','vc','packed',4,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"packed","memory_mib":null,"name":"packed","owner":"bob","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000160.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','PartnerFound',0,5.32751507526523255349e+02,1.33187876881630813837e+02,2,'[[1,[0,1,2,3]]]','alone',1700000160.0,1700000190.0,1700000190.0,NULL,NULL,NULL,'',0,45);
INSERT INTO "jobs" VALUES('other',43,'eve','vc','other',4,'{"checkpoint_s":30.0,"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"other","memory_mib":null,"name":"other","owner":"eve","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000190.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',0,5.32751507526523255349e+02,1.33187876881630813837e+02,1,'[]',NULL,1700000190.0,1700000220.0,NULL,NULL,NULL,NULL,'',0,49);
INSERT INTO "jobs" VALUES('lost',50,'ann','vc','',1,'{"checkpoint_s":30.0,"command":["sleep","900"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"lost","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":false,"resumable":false,"share":true,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','ExclusiveGpus',0,1.75637334289883924039e+01,1.75637334289883924039e+01,1,'[[0,[0]]]',NULL,1700000220.0,1700000230.0,1700000230.0,NULL,NULL,NULL,'',0,59);
INSERT INTO "jobs" VALUES('waits',52,'bob','vc','waits',4,'{"checkpoint_s":30.0,"command":["sleep","300"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"waits","memory_mib":null,"name":"waits","owner":"bob","priority":0,"profile":true,"resumable":false,"share":false,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',0,5.32751507526523255349e+02,1.33187876881630813837e+02,1,'[]',NULL,1700000220.0,1700000260.0,NULL,NULL,NULL,NULL,'',0,61);
INSERT INTO "jobs" VALUES('urgent',53,'ann','vc','urgent',8,'{"checkpoint_s":30.0,"command":["sleep","100"],"cpus":null,"environment":{},"gpu_type":null,"gpus":8,"job_id":"urgent","memory_mib":null,"name":"urgent","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000220.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',5,3.04964048839359702473e+03,3.81205061049199628092e+02,0,'[]',NULL,1700000220.0,1700000230.0,NULL,NULL,NULL,NULL,'',0,56);
INSERT INTO "jobs" VALUES('looked-at',62,'ann','vc','looked-at',2,'{"checkpoint_s":30.0,"command":["sleep","600"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"looked-at","memory_mib":null,"name":"looked-at","owner":"ann","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000290.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','profiling','ProfilingSlot',0,NULL,NULL,1,'[[2,[0,1]]]',NULL,1700000290.0,NULL,NULL,NULL,NULL,NULL,'',0,65);
INSERT INTO "jobs" VALUES('fresh',66,'eve','vc','fresh',1,'{"checkpoint_s":30.0,"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"fresh","memory_mib":null,"name":"fresh","owner":"eve","priority":0,"profile":true,"resumable":false,"share":true,"submitted_at":1700000291.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','submitted','',0,NULL,NULL,0,'[]',NULL,1700000291.0,NULL,NULL,NULL,NULL,NULL,'',0,66);
CREATE TABLE leases (
	name VARCHAR(32) NOT NULL, 
	holder VARCHAR(128) NOT NULL, 
	term BIGINT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('decider','after 1700000060.0',2,1700000070.0);
CREATE TABLE nodes (
	node INTEGER NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	vc VARCHAR(128) NOT NULL, 
	gpus INTEGER NOT NULL, 
	gpu_type VARCHAR(64) DEFAULT '' NOT NULL, 
	open BOOLEAN DEFAULT '1' NOT NULL, 
	PRIMARY KEY (node)
);
INSERT INTO "nodes" VALUES(0,'node000','vc',4,'V100',1);
INSERT INTO "nodes" VALUES(1,'node001','vc',4,'V100',0);
INSERT INTO "nodes" VALUES(2,'node002','vc',4,'V100',1);
CREATE TABLE questions (
	id VARCHAR(36) NOT NULL, 
	asked_at FLOAT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	answer TEXT, 
	answered_at FLOAT, 
	PRIMARY KEY (id)
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
COMMIT;
