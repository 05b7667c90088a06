module lo0.test/rke2_hostprep/cluster/pause

go 1.24
