package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/usage"
)

// kindLabels are labels of nodes whose values name a GPU: those of plan export and of GPU Feature Discovery
// (NVIDIA/k8s-device-plugin v0.17), and of the nodes of Google, Karpenter and AWS.
var kindLabels = []string{"inferplan/device", "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name", "k8s.amazonaws.com/accelerator"}

// gpuResources are the resources that stand for a whole GPU.
var gpuResources = []string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"}

// plainResources are the resources of containers that are no devices. Pages are hugepages-SIZE.
var plainResources = []string{"cpu", "memory", "ephemeral-storage"}

// kindLabel is a label of nodes that the user gave a kind of devices.
type kindLabel struct{ kind, label, text string }

// parseKindLabels reads flags KIND=LABEL=VALUE.
func parseKindLabels(list []string) (labels []kindLabel, err error) {
	for _, text := range list {
		parts := strings.SplitN(text, "=", 3)
		if len(parts) < 3 || slices.Contains(parts, "") {
			return nil, usage.Errorf("--node-selector: found %q, expected KIND=LABEL=VALUE, such as L4=nvidia.com/gpu.product=NVIDIA-L4", text)
		}
		labels = append(labels, kindLabel{parts[0], parts[1], parts[2]})
	}
	return labels, nil
}

// podDevices are the devices of a pod.
type podDevices struct {
	kind string // of its GPUs, or of its CPUs if it has none
	gpus int
	cpus int
}

// deviceReader reads which devices of a cluster pods have.
type deviceReader struct {
	cluster    *formats.Cluster
	kindLabels []kindLabel
}

// free returns the devices of the cluster, which no pod has yet.
func (t *deviceReader) free() *free {
	return &free{pools: t.cluster.Pools, hosts: triton.Hosts(t.cluster.Pools, t.cluster.Host == formats.HostShared)}
}

// devicesOf returns what the pods of a workload have.
func (t *deviceReader) devicesOf(w *workload) (d podDevices, err error) {
	limits := w.container.field("resources.limits")
	for _, name := range sortedKeys(limits.keys()) {
		switch {
		case slices.Contains(gpuResources, name):
			d.gpus += limits.member(name).count(0)
		case slices.Contains(plainResources, name) || strings.HasPrefix(name, "hugepages-"):
		case strings.Contains(name, "gpu") || strings.Contains(name, "mig-"):
			return d, limits.member(name).fail(name, "whole GPUs: "+document.List(gpuResources), "how much of a GPU a share of it has is not in the manifests")
		}
	}
	if cpus := limits.member("cpu"); cpus.exists() {
		d.cpus = cpus.cpus()
	} else {
		d.cpus = w.container.field("resources.requests.cpu").cpus()
	}
	if w.err != nil {
		return d, w.err
	}
	if d.kind, err = t.kindOf(w, d); err != nil {
		return d, err
	}
	if threads, _ := formats.CPUThreads(d.kind); d.gpus == 0 && d.cpus < max(threads, 1) {
		return d, w.container.field("resources.limits.cpu").fail(d.String(), fmt.Sprintf("at least the %d of a %s, or GPUs", max(threads, 1), d.kind), "")
	}
	return d, nil
}

// keys returns the fields of an object.
func (v value) keys() map[string]bool {
	keys := map[string]bool{}
	for i := 0; v.node != nil && i < len(v.node.Content)-1; i += 2 {
		keys[v.node.Content[i].Value] = true
	}
	return keys
}

// kindOf returns the kind of the devices of a workload's pods, by the labels of their nodes. Without any it is the only
// kind of the cluster.
func (t *deviceReader) kindOf(w *workload, d podDevices) (string, error) {
	var kinds []string
	for i := range t.cluster.Pools {
		if kind := t.cluster.Pools[i].Device; formats.IsCPU(kind) == (d.gpus == 0) {
			kinds = append(kinds, kind)
		}
	}
	nodes := nodeLabels(w.pods)
	for _, l := range t.kindLabels {
		if nodes[l.label] == l.text && slices.Contains(kinds, l.kind) {
			return l.kind, nil
		}
	}
	for _, label := range kindLabels {
		if isOurs := label == kindLabels[0]; nodes[label] != "" && (d.gpus > 0 || isOurs) { // the others name GPUs alone
			return namedKind(w, kinds, label, nodes[label])
		}
	}
	if len(kinds) == 1 {
		return kinds[0], nil
	}
	hint := "name it: --node-selector KIND=LABEL=VALUE, or give a cluster with the devices of these pods alone"
	if len(kinds) == 0 {
		return "", w.pods.fail("pods with "+d.String(), "pods with devices of the cluster", "resources.limits say which devices a pod has")
	}
	return "", w.pods.field("nodeSelector").fail("no label that tells the kind of device of "+w.String(), "one for "+strings.Join(kinds, " or "), hint)
}

// String returns the devices for messages.
func (d podDevices) String() string {
	if d.gpus > 0 {
		return fmt.Sprintf("%d GPUs", d.gpus)
	}
	return fmt.Sprintf("%d CPUs", d.cpus)
}

// namedKind returns the kind whose name the value of a label has among its words, such as L4 of NVIDIA-L4: the longest.
func namedKind(w *workload, kinds []string, label, text string) (string, error) {
	wordsIn := func(text string) string {
		return "-" + strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(text)) + "-"
	}
	longest := ""
	for _, kind := range kinds {
		if strings.Contains(wordsIn(text), wordsIn(kind)) && len(kind) > len(longest) {
			longest = kind
		}
	}
	if longest == "" {
		return "", w.pods.field("nodeSelector").fail(label+": "+text, "a kind of device of the cluster: "+strings.Join(kinds, " or "), fmt.Sprintf("name it: --node-selector KIND=%s=%s", label, text))
	}
	return longest, nil
}

// nodeLabels returns the labels that the nodes of pods have to have: by selector, or by an affinity to one value.
func nodeLabels(pods value) map[string]string {
	labels := pods.field("nodeSelector").labels()
	terms := pods.field("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms").items()
	if len(terms) != 1 {
		return labels // one of several terms suffices
	}
	for _, e := range terms[0].field("matchExpressions").items() {
		if values := e.field("values").texts(); e.field("operator").text() == "In" && len(values) == 1 {
			labels[e.field("key").text()] = values[0]
		}
	}
	return labels
}

// free are the devices of a cluster's hosts that no pod has yet.
type free struct {
	pools []formats.Pool
	hosts []triton.Host
}

// take returns a host with the devices of a pod, which are taken from the first host that has as many. If there is none,
// it returns false. A pod with GPUs has as many of the sets of CPU threads beside them as its CPUs are.
func (f *free) take(d podDevices) (host triton.Host, ok bool) {
	isKind := func(device triton.Device) bool { return f.pools[device.Pool].Device == d.kind }
	for i := range f.hosts {
		h := &f.hosts[i]
		host = triton.Host{Name: h.Name}
		if d.gpus == 0 {
			threads, _ := formats.CPUThreads(d.kind)
			if takeFrom(&h.CPUs, &host.CPUs, d.cpus/max(threads, 1), isKind) {
				return host, true
			}
			continue
		}
		if !takeFrom(&h.GPUs, &host.GPUs, d.gpus, isKind) {
			continue
		}
		for cpus := d.cpus; len(h.CPUs) > 0; {
			threads, _ := formats.CPUThreads(f.pools[h.CPUs[0].Pool].Device)
			if cpus -= max(threads, 1); cpus < 0 {
				break
			}
			host.CPUs, h.CPUs = append(host.CPUs, h.CPUs[0]), h.CPUs[1:]
		}
		return host, true
	}
	return triton.Host{}, false
}

// takePods takes the devices of all pods of a workload, and returns their hosts.
func (f *free) takePods(w *workload, d podDevices) (hosts []triton.Host, err error) {
	for pod := range w.count {
		host, ok := f.take(d)
		if !ok {
			return nil, w.replicas.orOf(w.pods).fail(fmt.Sprintf("%d pods of %s with %s of kind %s each", w.count, w, d, d.kind),
				fmt.Sprintf("at most %d: the cluster has no host with more of these devices free", pod), "pods are on one host; the cluster has the devices of all pods")
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// takeFrom moves the first count devices that match from one list to another, or returns false if there are fewer.
func takeFrom(from, to *[]triton.Device, count int, matches func(triton.Device) bool) bool {
	var taken, rest []triton.Device
	for _, d := range *from {
		if matches(d) && len(taken) < count {
			taken = append(taken, d)
		} else {
			rest = append(rest, d)
		}
	}
	if len(taken) < count {
		return false
	}
	*to, *from = append(*to, taken...), rest
	return true
}
