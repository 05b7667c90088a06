#!/bin/sh
# Captures what discovery reads from this machine into an archive: sh capture.sh OUT.tar.xz [ROOT]
# Reads only, and only files by name, since some files of /sys hang or act when they are read. Run it as root: without root the
# kubelet's state, the kept plan and the running preemption model are missing.
# Of RKE2's and the kubelet's configuration only the lines with the reserved CPUs are taken. The archive holds MAC addresses and the
# kernel command line: look through it before you hand it on.
set -eu
umask 077
out=$(realpath -m "${1:?usage: sh capture.sh OUT.tar.xz [ROOT]}")
root=${2:-/}
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
cd "$root"

existing() { for path; do [ -e "$path" ] && printf '%s\n' "$path"; done; }
# cp, not tar: files of /proc have no size that tar could see
copy() {
  xargs -r -0 cp --parents --no-dereference --no-preserve=mode -t "$work" 2>/dev/null || true
  chmod -R u+rwX "$work"
}

# where the devices of these classes and buses really are: sys/devices/pci0000:17, sys/devices/LNXSYSTM:00, sys/devices/qeth …
devices() {
  for link in sys/class/net/* sys/class/infiniband/* sys/bus/pci/devices/* sys/bus/virtio/devices/*; do
    [ -e "$link" ] && realpath --relative-to=. "$link"
  done | cut -d/ -f1-3 | grep '^sys/devices/' | grep -v '^sys/devices/virtual$' | sort -u
}

{ existing sys/devices/system/cpu sys/devices/system/node sys/devices/cpu_core sys/devices/cpu_atom sys/devices/virtual/net sys/devices/virtual/dmi \
    sys/bus/pci/devices sys/bus/virtio/devices sys/class/net sys/class/infiniband sys/class/dmi/id sys/hypervisor sys/kernel/debug/sched \
    sys/kernel/debug/irq/irqs sys/kernel/realtime proc/irq; devices || true; } |
while read -r top; do
  find "$top" \( -type l -o -type f \( \
    -name possible -o -name present -o -name online -o -name offline -o -name isolated -o -name nohz_full -o -name 'kernel_max' -o -name active -o -name control -o \
    -name 'has_*' -o -name '*_siblings*' -o -name '*_cpus*' -o -name '*_id' -o -name 'shared_cpu_*' -o -name level -o -name type -o -name modalias -o -name size -o -name id -o \
    -name cpus -o -name cpu_capacity -o -name 'cpulist' -o -name cpumap -o -name distance -o -name meminfo -o -name class -o -name vendor -o -name device -o \
    -name 'subsystem_*' -o -name numa_node -o -name 'local_cpu*' -o -name boot_vga -o -name 'sriov_*' -o -path '*/msi_irqs/*' -o -name operstate -o -name carrier -o \
    -name speed -o -name flags -o -name address -o -name dev_port -o -name phys_port_name -o -name mtu -o -name ifindex -o -name slaves -o -name mode -o -name uevent -o \
    -name rate -o -name state -o -name phys_state -o -name link_layer -o -name 'sys_vendor' -o -name product_name -o -name preempt -o -name realtime -o \
    -name 'smp_affinity*' -o -name effective_affinity_list -o -name default_smp_affinity -o -name node -o -path '*/debug/irq/irqs/*' \) \) -print0 2>/dev/null | copy
  # empty folders carry meaning too: a queue, an action of an interrupt, a port
  find "$top" -type d -print0 2>/dev/null | (cd "$work" && xargs -r -0 mkdir -p)
done
existing proc/cpuinfo proc/interrupts proc/cmdline proc/version proc/sysinfo proc/sys/kernel/osrelease proc/sys/kernel/version proc/sys/kernel/arch proc/config.gz \
  proc/net/route proc/net/ipv6_route proc/net/vlan/config proc/net/bonding/* proc/device-tree/hypervisor/compatible proc/device-tree/ibm,partition-name \
  boot/loader/entries/* efi/loader/entries/* boot/efi/loader/entries/* boot/grub/grubenv boot/grub2/grubenv etc/default/grub etc/default/grub.d/*.cfg \
  etc/grub.d/00_tuned etc/tuned/bootcmdline etc/kernel/cmdline var/lib/kubelet/cpu_manager_state \
  var/lib/lo0.rke2_hostprep/plan.json | tr '\n' '\0' | copy
release=$(cat proc/sys/kernel/osrelease 2>/dev/null || uname -r)
for config in "boot/config-$release" "lib/modules/$release/config" "usr/lib/modules/$release/config"; do
  if [ -r "$config" ]; then # often a link to the other, so the text is taken
    mkdir -p "$work/$(dirname "$config")" && cat "$config" >"$work/$config"
  fi
done
for config in etc/rancher/rke2/config.yaml etc/rancher/rke2/config.yaml.d/* var/lib/rancher/rke2/agent/etc/kubelet.conf.d/*; do
  if [ -r "$config" ]; then
    mkdir -p "$work/$(dirname "$config")"
    for key in reserved-cpus reservedSystemCPUs; do
      list=$(grep -v '^ *#' "$config" | grep -oE "${key}[\"']? *[=:] *[\"']?[0-9][0-9, -]*" | tail -n 1)
      list=$(printf %s "${list##*[=:]}" | tr -cd '0-9,-')
      case "$list $key" in
        " "*) ;;
        *reserved-cpus) printf 'kubelet-arg+:\n- reserved-cpus=%s\n' "${list%,}" ;;
        *) printf 'reservedSystemCPUs: "%s"\n' "${list%,}" ;;
      esac
    done >"$work/$config"
  fi
done
tar -cJf "$out" -C "$work" .
echo "captured $(find "$work" -type f | wc -l) files into $out"
