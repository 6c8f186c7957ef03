"""The library of tests with processes. A test imports from the module that it needs:

waiting   events, the one loop that polls, and all limits of real time
proc      what /proc says of processes
runner    runs the tests of a file
case      a temporary folder, ddpctl, and a cluster of rendezvous and launcherds in it
own       a cluster in a folder of its own, whose daemons and nodes are killed
gpus      the same on a stand-in libnvidia-ml
wire      the protocol: frames, a peer, a client, a rendezvous process for them
node      a scripted launcherd, for tests of rendezvous
server    a scripted server, for tests of launcherd and its shims
world     a folder with launcherd and that server
etcd      a real etcd of three members, and the links to it
servers   several servers on it, and threads that watch them
relay     a socket in front of a server's
stepper   a worker that does what the test tells it

tests/lint refuses sleeps, loops that poll and limits of real time in tests elsewhere."""
