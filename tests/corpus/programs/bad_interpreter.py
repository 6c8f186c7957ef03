#!/usr/bin/python2.6
print "hello"
