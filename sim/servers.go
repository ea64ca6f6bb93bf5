package sim

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/sim/llm"
)

// Kinds of agenda entries of instances of language models.
const (
	isStep     uint8 = ofHost + iota // an iteration ends
	isStart                          // the next iteration begins, after everything else of this instant
	isAdmitted                       // a sequence took part in its first iteration
	isLeft                           // a batch returns to the policy without a result
	isSwapped                        // a load or an unload of a network ends
)

// llmHost is the host of instances of language models. Package llm runs their
// iterations. This type dispatches and evicts sequences; its swapper loads and unloads
// networks.
type servers struct {
	*rack
	swaps swaps
	lives []life   // by task
	kept  [1]int32 // tokens of the task that BatchReturned is about
}

// llmInstances holds the instances. The parts of the host share it.
type rack struct {
	*loop
	list []server // by device
	ends *tokens  // nil if the run has another ending
}

// llmInstance is an instance with the network that it runs.
type server struct {
	in      llm.Instance
	network int32 // the network that it runs, or -1
	last    int32 // the network that it ran before, or -1
	down    bool
	starts  bool          // an iteration is scheduled in this instant
	leaving bool          // its network is unloaded as soon as its sequences have ended
	loading int32         // network that is being loaded or unloaded, or -1
	since   time.Duration // when the load or unload began
	epoch   int32         // counts the faults; an agenda entry of an earlier epoch is void
	waiting []order       // loads that have not begun
	warm    warm

	// Both in the counted time.
	ran, loaded time.Duration
}

// sequenceState holds what the host knows of a task beside its batch.
type life struct {
	// In tokens: the prompt, the answer, and what was generated so far.
	prompt, output, made int32
	session              int64
	ran                  time.Duration // when its first iteration began, below 0 before that
	kept                 int32         // device whose host memory holds its KV, plus one; 0 if none does
}

// newLLMHost returns a host for the instances of the tables.
func newServers(l *loop) host {
	r := &rack{loop: l, list: make([]server, len(l.t.Devices))}
	for d := range r.list {
		if i := l.t.InstanceOf(int32(d)); i >= 0 {
			r.start(int32(d))
		}
	}
	return &servers{rack: r, swaps: swaps{r}}
}

// hasLLMInstances reports whether the tables have instances with the costs of a server.
func serves(t *policy.Tables) bool {
	return slices.ContainsFunc(t.Instances, func(in policy.Instance) bool { return in.Server != nil })
}

// runResident makes an instance run the network that the plan puts on its device.
func (h *rack) start(d int32) {
	s := &h.list[d]
	s.network, s.last, s.loading, s.leaving = -1, -1, -1, false
	s.waiting, s.warm = s.waiting[:0], s.warm[:0]
	if int(d) < len(h.t.Resident) && len(h.t.Resident[d]) > 0 {
		s.run(h.t, d, h.t.Resident[d][0], h.cfg.Slower)
	}
}

// countedTime returns the part of a time span that lies in the counted time.
func (h *rack) counted(from, to time.Duration) time.Duration {
	from = max(from, h.cfg.Warmup)
	if h.cfg.Duration > 0 {
		to = min(to, h.cfg.Duration)
	}
	return max(0, to-from)
}

// serverOf returns the server that the tables have for the instance on a device.
func (h *rack) server(d int32) *policy.Server { return h.t.Instances[h.t.InstanceOf(d)].Server }

// runNetwork makes an instance run a network. Its iterations take longer than profiled by
// the share slowdown.
func (s *server) run(t *policy.Tables, d, network int32, slower float64) {
	in := &t.Instances[t.InstanceOf(d)]
	v := in.Server
	c := &v.Costs[network]
	s.network = network
	s.in.Reset(llm.Options{
		Budget: in.Budget, Block: v.Block, Priority: v.Priority, Reserve: v.Reserve, Swap: v.Swap,
		SwapRate: v.SwapGBps * 1e9, Hidden: v.Hidden, Prefix: v.Prefix, Progress: in.Progress,
	}, llm.Model{Iteration: c.Iteration.Slower(slower), KV: c.KV, Sequences: c.Sequences, KVBytes: c.KVBytes})
	s.warm.keep(network, t.Networks, v.Warm)
}

// dispatch implements host. If the network is not loaded or the instance refuses the sequence, the batch returns.
func (h *servers) dispatch(slot int32) {
	d := h.hop(slot, 0).Device
	s := &h.list[d]
	if s.down {
		return
	}
	b := &h.batches[slot]
	if b.model >= 0 {
		h.acc.Batch(b.model, int(b.size), h.now)
	}

	// The sequence needs the network, and a prompt and an answer of at least one token.
	if s.network < 0 || s.network != h.t.Pipelines[b.pipeline].Network {
		h.handBack(slot, d, policy.ReturnNotLoaded)
		return
	}
	task := h.members(slot)[0]
	f := h.lifeOf(task)
	if f.prompt < 1 || f.output < 1 {
		h.fail(&document.Error{
			Path: "prompt_tokens", Found: fmt.Sprintf("a request for %s with a prompt of %d tokens and an answer of %d", h.t.Models[h.requests[h.tasks.List[task].Req].model].Key(), f.prompt, f.output),
			Expected: "at least one token each", Hint: "a trace needs the columns prompt_tokens and output_tokens",
		})
		return
	}

	// Hand the sequence to the instance, which starts after everything else of this instant.
	seq := llm.Sequence{ID: slot, Prompt: f.prompt, Output: f.output, Made: f.made, Priority: b.tag, Session: f.session, Swapped: f.kept == d+1}
	f.kept = 0
	if err := s.in.Add(seq); err != nil {
		h.handBack(slot, d, policy.ReturnRefused)
		return
	}
	if !s.in.Busy() && !s.starts {
		s.starts = true
		h.at(h.now, policy.NumEvents, h.sequence(), item{what: isStart, host: 1, device: d, epoch: s.epoch})
	}
}

// sequenceOf returns the state of a task. The first dispatch of the task begins it.
func (h *servers) lifeOf(task int32) *life {
	for int(task) >= len(h.lives) {
		h.lives = append(h.lives, life{})
	}
	f := &h.lives[task]
	if t := &h.spots[task]; !t.begun {
		t.begun = true
		*f = life{output: h.truth.Tokens(task), ran: -1}
		if p, ok := h.truth.(Prompter); ok {
			f.prompt, f.session = p.Prompt(task)
		}
	}
	return f
}

// returnBatch ends a batch without a result, later in this instant.
func (h *servers) handBack(slot, d int32, why policy.Return) {
	b := &h.batches[slot]
	h.at(h.now, policy.BatchReturned, b.serial, item{what: isLeft, host: 1, serial: b.serial, batch: slot, device: d, up: int32(why)})
}

// startIteration starts the next iteration of an instance, if it has a sequence.
func (h *servers) step(d int32) {
	s := &h.list[d]
	took, began, ok := s.in.Begin()
	if !ok {
		h.swaps.idle(d)
		return
	}
	s.ran += h.counted(h.now, h.now+took)
	for _, slot := range began {
		if f := h.lifeOf(h.members(slot)[0]); f.ran < 0 {
			f.ran = h.now
		}
		h.begun.push(item{what: isAdmitted, host: 1, serial: h.batches[slot].serial, batch: slot, device: d, start: h.now})
	}
	h.at(h.now+took, policy.TokenProgress, h.sequence(), item{what: isStep, host: 1, device: d, epoch: s.epoch})
}

// handleEntry implements host.
func (h *servers) due(it *item) {
	switch it.what {
	case isStep:
		if h.list[it.device].epoch == it.epoch {
			h.stepped(it.device)
		}
	case isStart:
		if s := &h.list[it.device]; s.epoch == it.epoch {
			if s.starts = false; !s.in.Busy() {
				h.step(it.device)
			}
		}
	case isSwapped:
		if h.list[it.device].epoch == it.epoch {
			h.swaps.changed(it)
		}
	case isAdmitted, isLeft:
		// The policy may have aborted the batch meanwhile.
		b := &h.batches[it.batch]
		if !b.live || b.serial != it.serial {
			return
		}
		if it.what == isAdmitted {
			h.beginBatch(policy.BatchStarted, it.batch, it.device).Start = it.start
			h.tell()
			return
		}
		h.kept[0] = h.lifeOf(h.members(it.batch)[0]).made
		h.returned(it.batch, it.device, policy.Return(it.up), h.kept[:])
	}
}

// endIteration ends an iteration. The instance starts the next one before the policy hears of anything.
func (h *servers) stepped(d int32) {
	s := &h.list[d]
	e := s.in.End()

	// Note the first tokens, and go on.
	for _, slot := range e.First {
		if h.ends != nil {
			h.ends.first(h.members(slot)[0])
		}
	}
	h.step(d)

	// Answer the requests whose sequences are finished.
	for _, slot := range e.Finished {
		b, task := &h.batches[slot], h.members(slot)[0]
		f := h.lifeOf(task)
		f.made = f.output
		if h.ends != nil {
			h.ends.last(task, f.made)
		}
		b.live = false
		h.ending.ran(slot, d)
		ev := h.beginBatch(policy.BatchFinished, slot, d)
		ev.End, ev.Tokens = h.now, f.made
		h.tell()
	}

	// Report the progress of the others.
	for _, list := range [2][]int32{e.First, e.Progress} {
		for _, slot := range list {
			if h.batches[slot].live && s.in.Made(slot) > 0 {
				h.beginBatch(policy.TokenProgress, slot, d).Tokens = s.in.Made(slot)
				h.tell()
			}
		}
	}
}

// abort implements host. The request keeps the tokens that were generated; their KV is lost.
func (h *servers) abort(slot int32) { h.remove(slot, false) }

// removeSequence takes a sequence off its instance. With keepKV its KV goes to the host's
// memory, if that is possible.
func (h *servers) remove(slot int32, keep bool) {
	d := h.hop(slot, 0).Device
	s := &h.list[d]
	f := h.lifeOf(h.members(slot)[0])
	made, swapped := s.in.Remove(slot, keep)
	f.made = max(f.made, made)
	if swapped {
		f.kept = d + 1
	}
	if all, _ := s.in.Holds(); all == 0 && !s.in.Busy() {
		h.swaps.idle(d)
	}
}

// evict implements host.
func (h *servers) evict(slot int32, keep bool) {
	h.remove(slot, keep)
	if h.ends != nil {
		h.ends.res.Evictions++
	}
	h.handBack(slot, h.hop(slot, 0).Device, policy.ReturnEvicted)
}

// load implements host.
func (h *servers) load(o order) { h.swaps.load(o) }

// place implements host.
func (h *servers) place(task, device int32) { h.base.place(task, device) }

// fault implements host.
func (h *servers) fault(d int32, back bool) {
	s := &h.list[d]
	if s.down != back {
		return
	}
	s.down = !back
	s.epoch++
	kind := policy.WorkerBack
	if !back {
		kind = policy.WorkerLost
		h.lose(d)
	} else {
		h.start(d)
	}
	ev := h.loop.begin(kind)
	ev.Device = d
	if s.network >= 0 {
		c := &h.server(d).Costs[s.network]
		ev.Value, ev.Limit = int64(c.Sequences), int32(c.KV)
	}
	h.tell()
}

// clearInstance empties an instance. The requests keep the tokens that were generated; the
// KV memory and what the host's memory held are lost.
func (h *servers) lose(d int32) {
	s := &h.list[d]
	for slot := range h.batches {
		if b := int32(slot); h.batches[b].live && h.hop(b, 0).Device == d {
			f := h.lifeOf(h.members(b)[0])
			f.made = max(f.made, s.in.Made(b))
		}
	}
	for i := range h.lives {
		if h.lives[i].kept == d+1 {
			h.lives[i].kept = 0
		}
	}
	s.in.Reset(llm.Options{}, llm.Model{})
	s.network, s.loading, s.leaving, s.starts, s.waiting = -1, -1, false, false, s.waiting[:0]
}

// busyTime implements host.
func (h *servers) running(d int32) time.Duration { return h.list[d].ran }

// loadTime returns how long networks were loaded and unloaded in the counted time.
func (h *servers) loading(d int32) time.Duration { return h.list[d].loaded }

// finish implements host.
func (h *servers) finish() error {
	for d := range h.list {
		s := &h.list[d]
		if all, _ := s.in.Holds(); all > 0 || s.in.Busy() || s.loading >= 0 {
			return fmt.Errorf("the instance on device %d still works when nothing is left to happen", d)
		}
		if s.in.UsedKV() > 0 {
			return fmt.Errorf("the instance on device %d is empty and uses %d tokens of KV memory", d, s.in.UsedKV())
		}
	}
	return nil
}
