# Ordinary work in a shell with its tools: prints one line for each thing that was done.
set -eu
cd /workspace
mkdir -p notes/deep
for number in 3 1 2; do echo "line $number" >> notes/deep/list; done
echo "sorted: $(sort notes/deep/list | tr '\n' ' ')"
cp notes/deep/list notes/copy
mv notes/copy notes/moved
ln -s deep/list notes/link
echo "linked: $(head -n 1 notes/link) $(readlink notes/link)"
echo "sum: $(printf hello | sha256sum | cut -c 1-8)"
chmod 700 notes/moved
echo "mode: $(stat -c %a notes/moved)"
chmod 4755 notes/moved 2>/dev/null && echo "set-id: made" || echo "set-id: refused"
echo "pipe: $(dd if=/dev/zero bs=1024 count=64 2>/dev/null | wc -c | tr -d ' ')"
(sleep 0.1; echo late > notes/late) &
wait
echo "background: $(cat notes/late)"
echo "where: $(pwd) $HOME $(id -u)"
echo x > /dev/null
echo "random: $(head -c 8 /dev/urandom | wc -c | tr -d ' ')"
echo x > /dev/shm/x && echo "shared: $(cat /dev/shm/x)"
touch /here 2>/dev/null && echo "root: written" || echo "root: refused"
trap 'echo "trapped: yes"' USR1
kill -USR1 $$
rm -r notes
echo "left: $(ls /workspace | wc -l | tr -d ' ')"
exec sh -c 'exit 7'
