package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// deviceKind is a kind of device of a plan, with the pods of one copy that have its devices.
type deviceKind struct {
	Name    string // in the plan
	ID      string // in names of objects
	Devices int    // that join a server: whole devices, or shares of them
	Share   int    // v, of shares 1/v
	PerPod  int    // devices of a pod
	CPUs    int    // of a pod
	Memory  document.Bytes
	// Resource is what a pod asks for to get a device; empty for kinds that are CPUs.
	Resource string
	Selector [2]string // label of the nodes, and its value
	Ops      []string  // libraries of custom operators, beside the models
}

// Pods returns the number of pods of a copy.
func (k *deviceKind) Pods() int { return k.Devices / k.PerPod }

// Cache returns the pod's memory for models that its devices swap: half, as the runtime and batches take the rest.
func (k *deviceKind) Cache() document.Bytes { return k.Memory / 2 }

// Quantity returns the pod's memory as Kubernetes writes it.
func (k *deviceKind) Quantity() string { return quantity(k.Memory) }

// newKinds returns the kinds of devices on which the plan has workers place models, in the order of its pools.
func (o *options) newKinds(plan *formats.Plan) ([]deviceKind, error) {
	generations := generationsOf(plan)
	used := map[string]map[int]int{} // by kind and number: shares of the device that are used
	shares := map[string]map[int]bool{}
	for s := range plan.Stages() {
		if generations[s.Deployed.Model] != nil {
			continue // a server of language models has the device
		}
		if used[s.Device] == nil {
			used[s.Device], shares[s.Device] = map[int]int{}, map[int]bool{}
		}
		shares[s.Device][s.Share] = true
		for _, p := range s.Placement {
			for replica := range p.Replicas {
				used[s.Device][p.FirstDevice+replica/max(p.PerDevice, 1)]++
			}
		}
	}

	// Make the kinds, and set what flags say of them.
	var kinds []deviceKind
	for i := range plan.Pools {
		pool := &plan.Pools[i]
		if used[pool.Device] == nil {
			continue
		}
		k := deviceKind{Name: pool.Device, ID: labelID(pool.Device), PerPod: 1, Share: 1, Devices: len(used[pool.Device])}
		if !pool.TimeShared() {
			k.Devices = 0
			for _, n := range used[pool.Device] {
				k.Devices += n
			}
			list := slices.Sorted(maps.Keys(shares[pool.Device]))
			if k.Share = list[0]; len(list) > 1 {
				return nil, fmt.Errorf("pools[%d]: found shares %v of %s, expected one: a resource of Kubernetes stands for one size of share\n  hint: plan with max_shares: 1 in the cluster's pool", i, list, k.Name)
			}
		}
		kinds = append(kinds, k)
	}
	for i := range kinds {
		if err := o.setKind(&kinds[i], plan); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(kinds[:i], func(k deviceKind) bool { return k.ID == kinds[i].ID }) {
			return nil, fmt.Errorf("pools: found kinds that have the same name %q in Kubernetes, expected names that differ in letters and digits", kinds[i].ID)
		}
	}
	return kinds, o.setFlagsOf(kinds)
}

// setKind sets what the plan says of a kind: the pod's CPUs, memory, resource and libraries, for one device.
func (o *options) setKind(k *deviceKind, plan *formats.Plan) error {
	if k.ID == "" || len(k.ID) > maxName {
		return fmt.Errorf("pools: found kind %q, expected a name with 1 to %d letters and digits", k.Name, maxName)
	}
	pool := document.First(plan.Pools, func(p *formats.Pool) bool { return p.Device == k.Name })
	k.CPUs, k.Memory = 1, 4<<30
	switch threads, known := formats.CPUThreads(k.Name); {
	case known:
		k.CPUs, k.Memory = threads, cmp.Or(pool.Memory, k.Memory)
	case formats.IsCPU(k.Name):
		return fmt.Errorf("pools: found kind %q, which does not say how many CPUs a device has, expected cpu-N for N CPUs", k.Name)
	case k.Share > 1:
		k.Resource = "nvidia.com/gpu.shared"
	default:
		k.Resource = "nvidia.com/gpu"
	}
	if o.workerMemory != "" {
		size, err := parseSize("worker-memory", o.workerMemory, 64<<20)
		if err != nil {
			return err
		}
		k.Memory = size
	}
	for s := range plan.Stages() {
		for _, l := range s.Deployed.Operators {
			if name := path.Base(l.Path); s.Device == k.Name && !slices.Contains(k.Ops, name) {
				k.Ops = append(k.Ops, name)
			}
		}
	}
	k.Selector = [2]string{"inferplan/device", k.Name}
	return nil
}

// setFlagsOf sets what flags with KIND=VALUE say of the kinds.
func (o *options) setFlagsOf(kinds []deviceKind) error {
	names := document.Map(kinds, func(k *deviceKind) string { return k.Name })
	selectors, err := parsePerKind("node-selector", "LABEL=VALUE", o.nodeSelectors, names)
	if err != nil {
		return err
	}
	resources, err := parsePerKind("resource", "RESOURCE", o.resources, names)
	if err != nil {
		return err
	}
	counts, err := parsePerKind("devices-per-pod", "N", o.devicesPerPod, names)
	if err != nil {
		return err
	}
	for i := range kinds {
		k := &kinds[i]
		if text, ok := selectors[k.Name]; ok {
			k.Selector[0], k.Selector[1], _ = strings.Cut(text, "=")
		}
		if !labelKey.MatchString(k.Selector[0]) || len(k.Selector[1]) > maxLabel || !labelValue.MatchString(k.Selector[1]) {
			return fmt.Errorf("--node-selector: found label %s=%s for kind %s, expected one that Kubernetes takes\n  hint: --node-selector '%s=LABEL=VALUE'", k.Selector[0], k.Selector[1], k.Name, k.Name)
		}
		if name, ok := resources[k.Name]; ok {
			if !labelKey.MatchString(name) {
				return fmt.Errorf("--resource: found %q, expected a resource such as nvidia.com/gpu", name)
			}
			k.Resource = name
		}
		if text, ok := counts[k.Name]; ok {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || k.Devices%n != 0 {
				return fmt.Errorf("--devices-per-pod: found %s=%s, expected a divisor of the %d devices of the plan", k.Name, text, k.Devices)
			}
			if n > 1 && k.Share > 1 {
				return fmt.Errorf("--devices-per-pod: found %s=%s, expected 1: a pod has one share of a device", k.Name, text)
			}
			k.PerPod, k.CPUs, k.Memory = n, k.CPUs*n, k.Memory*document.Bytes(n)
		}
	}
	return nil
}
