#!/bin/bash
# Makes the machine gpu01 of user ada out of this one, in namespaces that record has made: her programs in ~/train, and a virtual environment.
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /opt
for version in 3.8 3.11 3.12 3.13; do
    mkdir /opt/python$version
    for from in "$PYTHONS"/$version.*; do mount --bind "$from" /opt/python$version; done
done
# The new /home is made aside, since what goes there may be in the old one.
mount -t tmpfs -o mode=755 tmpfs /mnt
ada=/mnt/ada bin=/mnt/ada/venv/bin
mkdir -p $ada/train $bin $ada/venv/lib/python3.11/site-packages
cp "$VENV"/bin/* $bin
cp -n "$DDP_PYTORCH"/bin/torchrun $bin
sed -i -s '1s,^#!.*python.*,#!/home/ada/venv/bin/python,' $bin/*
rm -f $bin/python*
ln -s /opt/python3.11/bin/python3.11 $bin/python
ln -s python $bin/python3
printf 'home = /opt/python3.11/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n' >$ada/venv/pyvenv.cfg
mount -t overlay -o "ro,lowerdir=$VENV/lib/python3.11/site-packages:$DDP_PYTORCH/lib/python3.11/site-packages" overlay $ada/venv/lib/python3.11/site-packages
cp -r "$HERE"/programs/. $ada/train
printf 'root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/bash\n' >$ada/.passwd
printf 'root:x:0:\nada:x:1000:\n' >$ada/.group
printf '127.0.0.1 localhost gpu01\n' >$ada/.hosts
chown 1000:1000 $ada
chown -R 1000:1000 $ada/train
mount --rbind /mnt /home
umount -l /mnt
for folder in /etc /usr /root /var; do
    mount --bind $folder $folder
    mount -o remount,bind,ro $folder
done
for file in passwd group hosts; do mount --bind /home/ada/.$file /etc/$file; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# The folder that the tree is in.
case "$HIDE" in
/bin | /dev | /etc | /home | /lib* | /opt | /proc | /root | /run | /sys | /tmp | /usr | /var) ;;
*) mount -t tmpfs -o mode=755 tmpfs "$HIDE" ;;
esac
hostname gpu01
ip link set lo up
cd /home/ada/train
if [ -n "$BEFORE" ]; then eval "$BEFORE"; fi
