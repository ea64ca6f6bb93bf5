package vqueue

import (
	"slices"
	"time"

	"inferplan/policy"
)

// instanceFleet has the instances, with the batches that run on them and their free memory.
type fleet struct {
	t         *policy.Tables
	own       *Tables
	classes   []class // by served model
	ops       operations
	instances []instance
	of        []int32 // by device: its instance, or -1
}

// instance is a server of language models on a device.
type instance struct {
	device   int32
	down     bool          // its device is lost
	off      bool          // switched off by Options.NewScaler
	loaded   int32         // network that is loaded, or -1
	coming   int32         // network that is being loaded, or -1
	since    time.Duration // start of that load
	failed   bool          // the last load failed; the next tick tries again
	running  []int32       // batch slots
	counts   []int32       // number of running batches by served model
	tokens   int64         // tokens of KV memory that the running batches may take
	evicting int           // evictions that were ordered and have not ended
	full     int32         // number of running batches at which the server refused one more; 0 if it never did
	// Limits that the server itself reported: sequences, and tokens of KV memory.
	sequences,
	kv int64
}

// newInstanceFleet returns the instances of the tables, each with its resident network.
func newFleet(t *policy.Tables, own *Tables, ops operations) *fleet {
	f := &fleet{t: t, own: own, classes: newClasses(t, own), ops: ops, of: make([]int32, len(t.Devices))}
	for d := range t.Devices {
		f.of[d] = -1
		at := t.InstanceOf(int32(d))
		if at < 0 {
			continue
		}
		f.of[d] = int32(len(f.instances))
		in := instance{device: int32(d), loaded: -1, coming: -1, counts: make([]int32, len(t.Models)), sequences: int64(t.Instances[at].Sequences), kv: t.Instances[at].KV}
		if r := t.Resident[d]; len(r) > 0 {
			in.loaded = r[0]
		}
		f.instances = append(f.instances, in)
	}
	return f
}

// isUp reports whether an instance works and is switched on.
func (in *instance) up() bool { return !in.down && !in.off }

// networkOf returns the network of a served model.
func (f *fleet) network(model int32) int32 {
	return f.t.Pipelines[f.t.Models[model].FirstPipeline].Network
}

// anyModelOf returns the first served model of a network.
func (f *fleet) someModel(network int32) int32 {
	for m := range f.t.Models {
		if f.network(int32(m)) == network {
			return int32(m)
		}
	}
	return 0
}

// kindOf returns the kind of an instance's device.
func (f *fleet) kind(in *instance) int32 { return f.t.Devices[in.device].Kind }

// estimatorIndex returns the index of the estimator of a served model on a kind of device.
func (f *fleet) at(model int32, mega bool, kind int32) int {
	return place(len(f.t.Kinds), model, mega, kind)
}

// isMega reports whether a request is a mega prompt.
func (f *fleet) mega(r *request) bool {
	return f.own.Mega[r.model] > 0 && r.prompt >= f.own.Mega[r.model]
}

// estimatorOn returns the estimator of a served model on an instance.
func (f *fleet) estimator(in *instance, model int32, mega bool) *RCT {
	return f.own.Estimator(len(f.t.Kinds), model, mega, f.kind(in))
}

// isAllowed reports whether an instance may serve a network.
func (f *fleet) may(in *instance, network int32) bool {
	if f.own.Only == nil {
		return true
	}
	_, may := slices.BinarySearch(f.own.Only[network], in.device)
	return may
}

// canServe reports whether an instance may serve a network and has an estimator for it.
func (f *fleet) can(in *instance, network int32) bool {
	return f.may(in, network) && f.estimator(in, f.someModel(network), false).Batch > 0
}

// servesModel reports whether an instance serves a model, by its network and caps.
func (f *fleet) serves(in *instance, model int32) bool {
	return f.can(in, f.network(model)) && (f.own.Caps == nil || f.own.Caps[int(in.device)*len(f.t.Models)+int(model)] != 0)
}

// kvNeed returns the tokens of KV memory that are counted for a request: its prompt and the mean answer, or its
// token limit if that is less.
func (f *fleet) need(r *request) int64 {
	out := int32(f.own.RCT[2*int(r.model)*len(f.t.Kinds)].OutputMean)
	if r.limit > 0 {
		out = min(out, r.limit)
	}
	return int64(r.prompt) + int64(out)
}

// maxRunning returns how many requests may run at once on an instance if one of a model is among them: each served
// model that runs may allow fewer than the instance does.
func (f *fleet) most(in *instance, model int32) int64 {
	most, _ := f.holds(in, f.network(model))
	if f.own.Sequences == nil {
		return most
	}
	for m, n := range in.counts {
		if own := f.own.Sequences[m*len(f.t.Kinds)+int(f.kind(in))]; own > 0 && (n > 0 || m == int(model)) {
			most = min(most, int64(own))
		}
	}
	return most
}

// atCap reports whether as many requests of a model run on an instance as its cap allows.
func (f *fleet) capped(in *instance, model int32) bool {
	if f.own.Caps == nil {
		return false
	}
	most := f.own.Caps[int(in.device)*len(f.t.Models)+int(model)]
	return most >= 0 && in.counts[model] >= most
}

// capacity returns how many sequences and tokens of KV memory an instance takes with a network: the figures of the
// tables if they have some, else those that the server last reported.
func (f *fleet) holds(in *instance, network int32) (sequences, kv int64) {
	if server := f.t.Instances[f.t.InstanceOf(in.device)].Server; server != nil {
		c := &server.Costs[network]
		return int64(c.Sequences), c.KV
	}
	return in.sequences, in.kv
}

// canTakeRequest reports whether an instance takes one more request. An empty instance takes any.
func (f *fleet) room(in *instance, r *request) bool {
	n, most := int64(len(in.running)), f.most(in, r.model)
	switch {
	case f.capped(in, r.model):
		return false
	case n == 0:
		return true
	case in.full > 0 && n >= int64(in.full):
		return false
	}
	_, kv := f.holds(in, f.network(r.model))
	return n < most && (kv == 0 || in.tokens+f.need(r) <= kv)
}

// isFull reports whether an instance takes no further request of its network, whatever its size.
func (f *fleet) stuffed(in *instance) bool {
	n := int64(len(in.running))
	if n == 0 {
		return false
	}
	sequences, kv := f.holds(in, in.loaded)
	return n >= sequences || in.full > 0 && n >= int64(in.full) || kv > 0 && in.tokens > kv
}

// residence returns the mean residence of a model's requests on an instance.
func (f *fleet) stay(in *instance, model int32) time.Duration {
	mean, _ := f.estimator(in, model, false).Residence(1)
	return time.Duration(mean * float64(time.Second))
}

// leadTime returns how long before its milestone a request has to start, in the mean.
func (f *fleet) lead(in *instance, model int32) time.Duration {
	mean, _ := f.estimator(in, model, false).reach(f.classes[model].milestone)
	return time.Duration(mean * float64(time.Second))
}

// changeTime returns how long it takes to load a network on an instance and to unload it again. A change of
// networks includes one of each.
func (f *fleet) changeTime(in *instance, network int32) time.Duration {
	took, load := time.Duration(0), f.t.Networks[network].Load
	if server := f.t.Instances[f.t.InstanceOf(in.device)].Server; server != nil {
		took = server.Costs[network].Leaves
	}
	if kind := int(f.kind(in)); kind < len(load) {
		took += load[kind][f.ops.warm.tier()]
	}
	return took
}
