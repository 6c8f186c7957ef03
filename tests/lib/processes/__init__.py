"""The library of tests with processes. A test imports from the module that it needs:

waiting   events, the one loop that polls, and all limits of real time
proc      what /proc says of processes
runner    runs the tests of a file
case      a temporary folder, ddpctl, and a cluster of rendezvous and launcherds in it
gpus      the same on a stand-in libnvidia-ml
wire      the protocol: frames, a peer, a client, a rendezvous process for them
node      a scripted launcherd, for tests of rendezvous
world     a scripted server, for tests of launcherd and its shims
etcd      several servers on a real etcd, and threads that watch them
relay     a socket in front of a server's
stepper   a worker that does what the test tells it

tests/lint refuses sleeps, loops that poll and limits of real time in tests elsewhere."""
