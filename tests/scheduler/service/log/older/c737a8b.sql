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
INSERT INTO "decisions" VALUES(0,9,1700000000.0,'short','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"job_id":"short","limit":4,"need":4,"priority":85001699.42155397,"reason":"Submitted","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":0,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(1,9,1700000000.0,'ended','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"job_id":"ended","limit":4,"need":2,"priority":85001201.6725049,"reason":"Submitted","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":1,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(2,9,1700000000.0,'failed','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"job_id":"failed","limit":4,"need":1,"priority":85000849.71077698,"reason":"Submitted","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":2,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(3,9,1700000000.0,'toolarge','vc','refuse','InvalidRequest','{"action":"refuse","job_id":"toolarge","limit":12,"need":40,"reason":"InvalidRequest","seq":3,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(4,9,1700000000.0,'failed','vc','start','ExclusiveGpus','{"action":"start","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"free":11,"gpus":[1],"job_id":"failed","limit":12,"need":1,"nodes":[0],"priority":85000849.71077698,"reason":"ExclusiveGpus","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":4,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(5,9,1700000000.0,'ended','vc','start','ExclusiveGpus','{"action":"start","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"free":9,"gpus":[6],"job_id":"ended","limit":12,"need":2,"nodes":[0],"priority":85001201.6725049,"reason":"ExclusiveGpus","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":5,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(6,9,1700000000.0,'short','vc','start','ExclusiveGpus','{"action":"start","estimate_s":849.7107769845599,"evidence":[["p10_s",150.49432078970278],["p50_s",933.6128460930184],["p90_s",7370.447827597198],["mean_s",2250.8933956617434]],"free":5,"gpus":[15],"job_id":"short","limit":12,"need":4,"nodes":[1],"priority":85001699.42155397,"reason":"ExclusiveGpus","score":{"bundle":"coldstart","inputs":["0.921361"],"intercept":6.746072208274183,"terms":[0.0,0.0,0.0,0.0],"value":6.746072208274183},"seq":6,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(7,16,1700000000.0,'timeout','vc','enqueue','ProfilingOptedOut','{"action":"enqueue","estimate_s":58.95672659889314,"evidence":[["p10_s",9.677075944740357],["p50_s",64.87000941452696],["p90_s",518.5277807621703],["mean_s",157.7098227815148]],"job_id":"timeout","limit":4,"need":2,"priority":85000083.37740235,"reason":"ProfilingOptedOut","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["2","","90"],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,0.00378505015757135,-0.02298317182946688,0.007199710270133936,-0.007348200454790007],"value":4.093623078663639},"seq":7,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(8,16,1700000000.0,'cancelled','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"job_id":"cancelled","limit":4,"need":4,"priority":85000266.37575376,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":8,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(9,16,1700000000.0,'timeout','vc','start','ExclusiveGpus','{"action":"start","estimate_s":58.95672659889314,"evidence":[["p10_s",9.677075944740357],["p50_s",64.87000941452696],["p90_s",518.5277807621703],["mean_s",157.7098227815148]],"free":3,"gpus":[3],"job_id":"timeout","limit":12,"need":2,"nodes":[2],"priority":85000083.37740235,"reason":"ExclusiveGpus","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["2","","90"],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,0.00378505015757135,-0.02298317182946688,0.007199710270133936,-0.007348200454790007],"value":4.093623078663639},"seq":9,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(10,16,1700000000.0,'cancelled','vc','wait','GpusBusy','{"action":"wait","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595],["free_in_s",59.0]],"free":3,"held_by":["timeout"],"job_id":"cancelled","limit":12,"need":4,"position":1,"priority":85000266.37575376,"reason":"GpusBusy","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":10,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(11,19,1700000000.0,'cancelled','vc','cancel','Cancelled','{"action":"cancel","job_id":"cancelled","need":4,"reason":"Cancelled","seq":11,"time":1700000000.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(12,30,1700000190.0,'alone','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"job_id":"alone","limit":4,"need":4,"priority":85000273.87575376,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":12,"time":1700000190.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(13,30,1700000190.0,'alone','vc','start','ExclusiveGpus','{"action":"start","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"free":6,"gpus":[15],"job_id":"alone","limit":12,"need":4,"nodes":[1],"priority":85000273.87575376,"reason":"ExclusiveGpus","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":13,"time":1700000190.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(14,37,1700000220.0,'packed','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"job_id":"packed","limit":4,"need":4,"priority":85000276.37575376,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":14,"time":1700000220.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(15,37,1700000220.0,'packed','vc','start','ExclusiveGpus','{"action":"start","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"free":4,"gpus":[15],"job_id":"packed","limit":12,"need":4,"nodes":[0],"priority":85000276.37575376,"reason":"ExclusiveGpus","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":15,"time":1700000220.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(16,43,1700000290.0,'other','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"job_id":"other","limit":4,"need":4,"priority":85000278.87575376,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":16,"time":1700000290.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(17,43,1700000290.0,'other','vc','start','ExclusiveGpus','{"action":"start","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"free":0,"gpus":[15],"job_id":"other","limit":12,"need":4,"nodes":[2],"priority":85000278.87575376,"reason":"ExclusiveGpus","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":17,"time":1700000290.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(18,53,1700000350.0,'lost','vc','enqueue','ProfilingOptedOut','{"action":"enqueue","estimate_s":17.563733428988392,"evidence":[["p10_s",2.305824098190235],["p50_s",19.394597322109444],["p90_s",159.855599998698],["mean_s",50.76028482559043]],"job_id":"lost","limit":4,"need":1,"priority":85000033.56373343,"reason":"ProfilingOptedOut","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["1","",""],"intercept":4.5183297990740945,"terms":[-1.6390360167180738,0.055862302928775476,-0.0035645617988778735,-0.012430404010420459,-0.005371499402916162,0.007420241635719321],"value":2.921209861708301},"seq":18,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(19,53,1700000350.0,'waits','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595]],"job_id":"waits","limit":4,"need":4,"priority":85000282.37575376,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":19,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(20,53,1700000350.0,'urgent','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":381.2050610491996,"evidence":[["p10_s",19.206640677552524],["p50_s",286.80398310560156],["p90_s",2145.258438981009],["mean_s",938.6466768988715]],"job_id":"urgent","limit":4,"need":8,"priority":85001094.21073475,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["8","",""],"intercept":4.5183297990740945,"terms":[1.3856217589677766,0.055862302928775476,-0.0035645617988778735,-0.03214035991241655,0.014428092710396056,0.007420241635719321],"value":5.945957273605469},"seq":20,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(21,53,1700000350.0,'urgent','vc','wait','GpusBusy','{"action":"wait","estimate_s":381.2050610491996,"evidence":[["p10_s",19.206640677552524],["p50_s",286.80398310560156],["p90_s",2145.258438981009],["mean_s",938.6466768988715],["free_in_s",73.2]],"free":0,"held_by":["packed","other"],"job_id":"urgent","limit":12,"need":8,"position":1,"priority":85001094.21073475,"reason":"GpusBusy","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["8","",""],"intercept":4.5183297990740945,"terms":[1.3856217589677766,0.055862302928775476,-0.0035645617988778735,-0.03214035991241655,0.014428092710396056,0.007420241635719321],"value":5.945957273605469},"seq":21,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(22,53,1700000350.0,'lost','vc','wait','GpusBusy','{"action":"wait","estimate_s":17.563733428988392,"evidence":[["p10_s",2.305824098190235],["p50_s",19.394597322109444],["p90_s",159.855599998698],["mean_s",50.76028482559043],["free_in_s",3.2]],"free":0,"held_by":["packed"],"job_id":"lost","limit":12,"need":1,"position":2,"priority":85000033.56373343,"reason":"GpusBusy","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["1","",""],"intercept":4.5183297990740945,"terms":[-1.6390360167180738,0.055862302928775476,-0.0035645617988778735,-0.012430404010420459,-0.005371499402916162,0.007420241635719321],"value":2.921209861708301},"seq":22,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(23,53,1700000350.0,'waits','vc','wait','SharingOptedOut','{"action":"wait","estimate_s":133.1878768816308,"evidence":[["p10_s",22.896136990825827],["p50_s",146.42226960855433],["p90_s",1161.7440962193555],["mean_s",354.2050848570595],["free_in_s",3.2]],"free":0,"held_by":["packed"],"job_id":"waits","limit":12,"need":4,"position":3,"priority":85000282.37575376,"reason":"SharingOptedOut","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["4","",""],"intercept":4.5183297990740945,"terms":[0.26504678177450525,0.055862302928775476,-0.0035645617988778735,0.06001970237514547,-0.0038733817347940415,0.007420241635719321],"value":4.899240884254568},"seq":23,"time":1700000350.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(24,55,1700000441.0,'looked-at','vc','enqueue','Submitted','{"action":"enqueue","estimate_s":58.52990899734831,"evidence":[["p10_s",9.601068393882331],["p50_s",64.40109656643023],["p90_s",514.8293867053321],["mean_s",156.84228161668287]],"job_id":"looked-at","limit":4,"need":2,"priority":85000104.7737911,"reason":"Submitted","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["2","",""],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,-0.0035645617988778735,-0.02298317182946688,-0.007363340049000609,0.007420241635719321],"value":4.086478858478565},"seq":24,"time":1700000441.0,"vc":"vc"}');
INSERT INTO "decisions" VALUES(25,55,1700000441.0,'looked-at','vc','wait','GpusBusy','{"action":"wait","estimate_s":58.52990899734831,"evidence":[["p10_s",9.601068393882331],["p50_s",64.40109656643023],["p90_s",514.8293867053321],["mean_s",156.84228161668287],["free_in_s",559.7]],"free":0,"held_by":["other"],"job_id":"looked-at","limit":12,"need":2,"position":3,"priority":85000104.7737911,"reason":"GpusBusy","score":{"bundle":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","inputs":["2","",""],"intercept":4.5183297990740945,"terms":[-0.4612224114826794,0.055862302928775476,-0.0035645617988778735,-0.02298317182946688,-0.007363340049000609,0.007420241635719321],"value":4.086478858478565},"seq":25,"time":1700000441.0,"vc":"vc"}');
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
INSERT INTO "events" VALUES(1,1700000000.0,'genesis','','',0,'{"backend":"simulated","cluster":{"gpu_memory_mib":24576.0,"gpu_type":"V100","gpus_per_node":4,"name":"cluster","vcs":[["vc",3]]},"pace":1.0,"partition":{"known_s":604800.0,"largest_share":0.08,"limit_s":30.0,"max_gpus":4,"nodes":[["vc",1]],"scale_from":""},"policy":"pellucid","settings":{"ageing":0.05,"backfill":1.0,"borrowing":null,"busy_above":0.85,"fairness":{"half_life_s":604800.0,"users":{},"vcs":{},"weight":0.0},"gpu_exponent":0.5,"gpu_types":{"counted_on":null,"speeds":{},"wait_for_faster":true},"learns_speeds":true,"max_wait_s":172800.0,"overload":1.0,"pack_first_above":1.8,"partner_searches":16,"predict_again_s":3600.0,"profile_above":0.3,"sharing":{"max_gpus":8,"memory_margin_mib":0.0,"mode":null,"unmeasured":false}},"site":"","start":1700000000.0,"version":"test"}');
INSERT INTO "events" VALUES(2,1700000000.0,'lease','','',0,'{"holder":"one","term":1,"version":"0.1.0+55f984ec5a95"}');
INSERT INTO "events" VALUES(3,1700000060.0,'lease','','',0,'{"holder":"after 1700000060.0","term":2,"version":"0.1.0+55f984ec5a95"}');
INSERT INTO "events" VALUES(4,1700000000.0,'submitted','short','ann',0,'{"command":["sleep","20"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"short","memory_mib":null,"name":"short","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(5,1700000000.0,'submitted','ended','bob',0,'{"command":["sleep","200"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"ended","memory_mib":null,"name":"ended","owner":"bob","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(6,1700000000.0,'submitted','failed','ann',0,'{"command":["false"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"failed","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(7,1700000000.0,'submitted','toolarge','ann',0,'{"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":40,"job_id":"toolarge","memory_mib":null,"name":"toolarge","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(8,1700000000.0,'bundle','','',0,'{"digest":"673c3400bbffdbab27137d90409cfedf38d527b314796c75bc408b70e9ee6f13","path":"/srv/pellucid/champion"}');
INSERT INTO "events" VALUES(9,1700000000.0,'decided','','',8,'{"count":7,"digest":"e5b210f14d6ea7c3f706ded1ed3ffc23b26773a7613f11d98a500eaea66d86c0","now":1700000000.0,"upto":8}');
INSERT INTO "events" VALUES(10,1700000000.0,'started','failed','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(11,1700000000.0,'started','ended','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(12,1700000000.0,'started','short','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(13,1700000000.0,'decided','','',12,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000000.0,"upto":12}');
INSERT INTO "events" VALUES(14,1700000000.0,'submitted','timeout','ann',0,'{"command":["sleep","500"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"timeout","memory_mib":null,"name":"timeout","owner":"ann","priority":0,"profile":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":90.0,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(15,1700000000.0,'submitted','cancelled','ann',0,'{"command":["sleep","50"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"cancelled","memory_mib":null,"name":"cancelled","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(16,1700000000.0,'decided','','',15,'{"count":4,"digest":"179de365bf352e6cbc6fb58399778a9c04536336ca62f5903f868666208dc9e4","now":1700000000.0,"upto":15}');
INSERT INTO "events" VALUES(17,1700000000.0,'cancel_asked','cancelled','op',0,'{}');
INSERT INTO "events" VALUES(18,1700000000.0,'started','timeout','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(19,1700000000.0,'decided','','',18,'{"count":1,"digest":"9f1a8dbbcfd3b8cfe9b3385b7c17442e1d6a684cc8cad02133cc021193be53e2","now":1700000000.0,"upto":18}');
INSERT INTO "events" VALUES(20,1700000000.0,'ended','failed','',0,'{"attempt":1,"detail":"exit code 1","exit_code":1,"ran_s":0.0,"state":"failed"}');
INSERT INTO "events" VALUES(21,1700000000.0,'decided','','',20,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000000.0,"upto":20}');
INSERT INTO "events" VALUES(22,1700000020.0,'ended','short','',0,'{"attempt":1,"exit_code":0,"ran_s":20.0,"state":"completed"}');
INSERT INTO "events" VALUES(23,1700000020.0,'decided','','',22,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000020.0,"upto":22}');
INSERT INTO "events" VALUES(24,1700000030.0,'observed','ended','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0}}');
INSERT INTO "events" VALUES(25,1700000030.0,'observed','timeout','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0}}');
INSERT INTO "events" VALUES(26,1700000030.0,'decided','','',25,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000030.0,"upto":25}');
INSERT INTO "events" VALUES(27,1700000090.0,'ended','timeout','',0,'{"attempt":1,"detail":"ran for its 90 s","ran_s":90.0,"state":"timeout"}');
INSERT INTO "events" VALUES(28,1700000090.0,'decided','','',27,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000090.0,"upto":27}');
INSERT INTO "events" VALUES(29,1700000150.0,'submitted','alone','ann',0,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"alone","memory_mib":null,"name":"alone","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000150.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(30,1700000190.0,'decided','','',29,'{"count":2,"digest":"27c5cfdb2facb143e2dc51dc020194bc710b1925ff8208ccaa86e2498e9dc438","now":1700000190.0,"upto":29}');
INSERT INTO "events" VALUES(31,1700000190.0,'started','alone','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(32,1700000190.0,'decided','','',31,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000190.0,"upto":31}');
INSERT INTO "events" VALUES(33,1700000200.0,'ended','ended','',0,'{"attempt":1,"exit_code":0,"ran_s":200.0,"state":"completed"}');
INSERT INTO "events" VALUES(34,1700000200.0,'decided','','',33,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000200.0,"upto":33}');
INSERT INTO "events" VALUES(35,1700000200.0,'submitted','packed','bob',0,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"packed","memory_mib":null,"name":"packed","owner":"bob","priority":0,"profile":true,"share":true,"submitted_at":1700000200.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(36,1700000220.0,'observed','alone','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0}}');
INSERT INTO "events" VALUES(37,1700000220.0,'decided','','',36,'{"count":2,"digest":"1d598cfd9cec74f5898ab262b1e9fabf63590d4bf2ea7d11c4591a0dda4c68e5","now":1700000220.0,"upto":36}');
INSERT INTO "events" VALUES(38,1700000220.0,'started','packed','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(39,1700000220.0,'decided','','',38,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000220.0,"upto":38}');
INSERT INTO "events" VALUES(40,1700000250.0,'observed','packed','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0}}');
INSERT INTO "events" VALUES(41,1700000250.0,'decided','','',40,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000250.0,"upto":40}');
INSERT INTO "events" VALUES(42,1700000250.0,'submitted','other','eve',0,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"other","memory_mib":null,"name":"other","owner":"eve","priority":0,"profile":true,"share":true,"submitted_at":1700000250.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(43,1700000290.0,'decided','','',42,'{"count":2,"digest":"6f239aa981d4828c0d9a6e77baa4885353dddf644cb0c5778e488c4da289c42e","now":1700000290.0,"upto":42}');
INSERT INTO "events" VALUES(44,1700000290.0,'started','other','',0,'{"attempt":1}');
INSERT INTO "events" VALUES(45,1700000290.0,'decided','','',44,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000290.0,"upto":44}');
INSERT INTO "events" VALUES(46,1700000320.0,'observed','other','',0,'{"attempt":1,"profile":{"amp":false,"gpu_mem_mib":1000.0,"gpu_mem_util_pct":5.0,"gpu_util_pct":10.0}}');
INSERT INTO "events" VALUES(47,1700000320.0,'decided','','',46,'{"count":0,"digest":"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","now":1700000320.0,"upto":46}');
INSERT INTO "events" VALUES(48,1700000320.0,'submitted','lost','ann',0,'{"command":["sleep","900"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"lost","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":false,"share":true,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(49,1700000320.0,'node_set','','op',0,'{"node":1,"open":false}');
INSERT INTO "events" VALUES(50,1700000320.0,'submitted','waits','bob',0,'{"command":["sleep","300"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"waits","memory_mib":null,"name":"waits","owner":"bob","priority":0,"profile":true,"share":false,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(51,1700000320.0,'submitted','urgent','ann',0,'{"command":["sleep","100"],"cpus":null,"environment":{},"gpu_type":null,"gpus":8,"job_id":"urgent","memory_mib":null,"name":"urgent","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(52,1700000320.0,'priority_set','urgent','op',0,'{"priority":5}');
INSERT INTO "events" VALUES(53,1700000350.0,'decided','','',52,'{"count":6,"digest":"4c423e7ba341d86c16d0bd0b34c598c75692167120d213ebe6eecbc8babc20f6","now":1700000350.0,"upto":52}');
INSERT INTO "events" VALUES(54,1700000440.0,'submitted','looked-at','ann',0,'{"command":["sleep","600"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"looked-at","memory_mib":null,"name":"looked-at","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000440.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
INSERT INTO "events" VALUES(55,1700000441.0,'decided','','',54,'{"count":2,"digest":"d8e64674210947a1abcbded514a5dfbd63c0986ad6a001ce1553cd3b17892f33","now":1700000441.0,"upto":54}');
INSERT INTO "events" VALUES(56,1700000442.0,'submitted','fresh','eve',0,'{"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"fresh","memory_mib":null,"name":"fresh","owner":"eve","priority":0,"profile":true,"share":true,"submitted_at":1700000442.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}');
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
INSERT INTO "jobs" VALUES('short',4,'ann','vc','short',4,'{"command":["sleep","20"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"short","memory_mib":null,"name":"short","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,8.50016994215539693855e+07,8.49710776984559856828e+02,1,'[]',NULL,1700000000.0,1700000000.0,1700000000.0,1700000020.0,'completed',0,'',0,23,'','',NULL);
INSERT INTO "jobs" VALUES('ended',5,'bob','vc','ended',2,'{"command":["sleep","200"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"ended","memory_mib":null,"name":"ended","owner":"bob","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,85001201.6725049,8.49710776984559856828e+02,1,'[]',NULL,1700000000.0,1700000000.0,1700000000.0,1700000200.0,'completed',0,'',0,34,'','',NULL);
INSERT INTO "jobs" VALUES('failed',6,'ann','vc','',1,'{"command":["false"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"failed","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,8.50008497107769846884e+07,8.49710776984559856828e+02,1,'[]',NULL,1700000000.0,1700000000.0,1700000000.0,1700000000.0,'failed',1,'exit code 1',0,21,'','',NULL);
INSERT INTO "jobs" VALUES('toolarge',7,'ann','vc','toolarge',40,'{"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":40,"job_id":"toolarge","memory_mib":null,"name":"toolarge","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','refused','InvalidRequest',0,NULL,NULL,0,'[]',NULL,1700000000.0,NULL,NULL,1700000000.0,NULL,NULL,'asks for 40 GPUs; this virtual cluster has 12',0,9,'','',NULL);
INSERT INTO "jobs" VALUES('timeout',14,'ann','vc','timeout',2,'{"command":["sleep","500"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"timeout","memory_mib":null,"name":"timeout","owner":"ann","priority":0,"profile":false,"share":true,"submitted_at":1700000000.0,"time_limit_s":90.0,"user":"","vc":"vc","workdir":""}','ended','ExclusiveGpus',0,8.50000833774023503101e+07,5.89567265988931410447e+01,1,'[]',NULL,1700000000.0,1700000000.0,1700000000.0,1700000090.0,'timeout',NULL,'ran for its 90 s',0,28,'','',NULL);
INSERT INTO "jobs" VALUES('cancelled',15,'ann','vc','cancelled',4,'{"command":["sleep","50"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"cancelled","memory_mib":null,"name":"cancelled","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000000.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','cancelled','Cancelled',0,8.50002663757537603363e+07,1.33187876881630813837e+02,0,'[]',NULL,1700000000.0,1700000000.0,NULL,1700000000.0,'cancelled',NULL,'',1,19,'','',NULL);
INSERT INTO "jobs" VALUES('alone',29,'ann','vc','alone',4,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"alone","memory_mib":null,"name":"alone","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000150.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','ExclusiveGpus',0,8.50002738757537603352e+07,1.33187876881630813837e+02,1,'[[1,[0,1,2,3]]]',NULL,1700000150.0,1700000190.0,1700000190.0,NULL,NULL,NULL,'',0,37,'','',NULL);
INSERT INTO "jobs" VALUES('packed',35,'bob','vc','packed',4,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"packed","memory_mib":null,"name":"packed","owner":"bob","priority":0,"profile":true,"share":true,"submitted_at":1700000200.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','ExclusiveGpus',0,8.50002763757537603377e+07,1.33187876881630813837e+02,1,'[[0,[0,1,2,3]]]',NULL,1700000200.0,1700000220.0,1700000220.0,NULL,NULL,NULL,'',0,41,'','',NULL);
INSERT INTO "jobs" VALUES('other',42,'eve','vc','other',4,'{"command":["sleep","5000"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"other","memory_mib":null,"name":"other","owner":"eve","priority":0,"profile":true,"share":true,"submitted_at":1700000250.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','running','ExclusiveGpus',0,8.50002788757537603402e+07,1.33187876881630813837e+02,1,'[[2,[0,1,2,3]]]',NULL,1700000250.0,1700000290.0,1700000290.0,NULL,NULL,NULL,'',0,47,'','',NULL);
INSERT INTO "jobs" VALUES('lost',48,'ann','vc','',1,'{"command":["sleep","900"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"lost","memory_mib":null,"name":"","owner":"ann","priority":0,"profile":false,"share":true,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',0,8.50000335637334287174e+07,1.75637334289883924039e+01,0,'[]',NULL,1700000320.0,1700000350.0,NULL,NULL,NULL,NULL,'',0,53,'','',NULL);
INSERT INTO "jobs" VALUES('waits',50,'bob','vc','waits',4,'{"command":["sleep","300"],"cpus":null,"environment":{},"gpu_type":null,"gpus":4,"job_id":"waits","memory_mib":null,"name":"waits","owner":"bob","priority":0,"profile":true,"share":false,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','SharingOptedOut',0,8.50002823757537603367e+07,1.33187876881630813837e+02,0,'[]',NULL,1700000320.0,1700000350.0,NULL,NULL,NULL,NULL,'',0,53,'','',NULL);
INSERT INTO "jobs" VALUES('urgent',51,'ann','vc','urgent',8,'{"command":["sleep","100"],"cpus":null,"environment":{},"gpu_type":null,"gpus":8,"job_id":"urgent","memory_mib":null,"name":"urgent","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000320.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',5,8.50010942107347548021e+07,3.81205061049199628092e+02,0,'[]',NULL,1700000320.0,1700000350.0,NULL,NULL,NULL,NULL,'',0,53,'','',NULL);
INSERT INTO "jobs" VALUES('looked-at',54,'ann','vc','looked-at',2,'{"command":["sleep","600"],"cpus":null,"environment":{},"gpu_type":null,"gpus":2,"job_id":"looked-at","memory_mib":null,"name":"looked-at","owner":"ann","priority":0,"profile":true,"share":true,"submitted_at":1700000440.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','queued','GpusBusy',0,85000104.7737911,5.85299089973483077642e+01,0,'[]',NULL,1700000440.0,1700000441.0,NULL,NULL,NULL,NULL,'',0,55,'','',NULL);
INSERT INTO "jobs" VALUES('fresh',56,'eve','vc','fresh',1,'{"command":["sleep","60"],"cpus":null,"environment":{},"gpu_type":null,"gpus":1,"job_id":"fresh","memory_mib":null,"name":"fresh","owner":"eve","priority":0,"profile":true,"share":true,"submitted_at":1700000442.0,"time_limit_s":null,"user":"","vc":"vc","workdir":""}','submitted','',0,NULL,NULL,0,'[]',NULL,1700000442.0,NULL,NULL,NULL,NULL,NULL,'',0,56,'','',NULL);
CREATE TABLE leases (
	name VARCHAR(32) NOT NULL, 
	holder VARCHAR(128) NOT NULL, 
	term BIGINT NOT NULL, 
	expires_at FLOAT NOT NULL, for_s FLOAT DEFAULT '0' NOT NULL, beats BIGINT DEFAULT '0' NOT NULL, beat_at FLOAT DEFAULT '0' NOT NULL, boot VARCHAR(64) DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('decider','after 1700000060.0',2,1700000070.0,10.0,2,1700000060.0,'by hand');
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
INSERT INTO "nodes" VALUES(0,'node000','vc',4,'V100',1,24576.0,0,'','','',NULL);
INSERT INTO "nodes" VALUES(1,'node001','vc',4,'V100',0,24576.0,0,'','','op',1700000320.0);
INSERT INTO "nodes" VALUES(2,'node002','vc',4,'V100',1,24576.0,0,'','','',NULL);
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
