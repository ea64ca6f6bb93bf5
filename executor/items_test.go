package executor

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// The services of an application that finds up to four items in a sample, labels
// each and joins the labels.
const (
	find int32 = iota
	label
	gather
)

// itemsPlan has a model for each service, on a device each. What find makes is
// cut into items of so many bytes.
func itemsPlan(item int64, batch int) *formats.Plan {
	p := onePlan(2*time.Millisecond, batch, 1, patient)
	tensors := func(width int64, names ...string) (list []formats.TensorInfo) {
		for _, n := range names {
			list = append(list, formats.TensorInfo{Name: n, DType: "UINT8", Shape: []int64{-1, width}})
		}
		return list
	}
	first := p.Deployment[0]
	p.Deployment, p.Pools[0].Count = nil, 3
	for i, s := range []struct {
		name    string
		in, out []formats.TensorInfo
	}{
		{"find", tensors(16, "x"), tensors(8, "items")},
		{"label", tensors(item, "item"), tensors(8, "label")},
		{"gather", tensors(8, "a", "b", "c", "d"), tensors(8, "y")},
	} {
		m := first
		m.Model, m.Inputs, m.Outputs = s.name, s.in, s.out
		stage := first.Pipelines[0].Stages[0]
		stage.Placement = []formats.Placement{{FirstDevice: i, PerDevice: 1, Replicas: 1}}
		m.Pipelines = []formats.Pipeline{{Batch: batch, RPS: 100, Stages: []formats.Stage{stage}}}
		p.Deployment = append(p.Deployment, m)
	}
	return complete(p)
}

// itemsControl says which tasks a request has.
type itemsControl struct {
	of   map[int32]int32 // service by task
	req  map[int32]int32
	open map[int32][]int32 // tasks of a request, in order
	left map[int32]int     // labels that have still to end
}

func newItemsControl(*policy.Tables) policy.Control {
	return &itemsControl{map[int32]int32{}, map[int32]int32{}, map[int32][]int32{}, map[int32]int{}}
}

func (c *itemsControl) reveal(req, service int32, item int64, out *policy.RevealedTasks, inputs ...int32) {
	t := out.TakeSlot()
	c.of[t], c.req[t], c.open[req] = service, req, append(c.open[req], t)
	out.Tasks = append(out.Tasks, policy.RevealedTask{Req: req, Task: t, Service: service, Item: item, FirstInput: int32(len(out.Inputs)), NumInputs: int32(len(inputs))})
	out.Inputs = append(out.Inputs, inputs...)
}

func (c *itemsControl) BeginRequest(req, _ int32, out *policy.RevealedTasks) {
	c.open[req] = nil
	c.reveal(req, find, 0, out, -1)
}

func (c *itemsControl) TaskEnded(task int32, o policy.Outcome, out *policy.RevealedTasks) {
	req := c.req[task]
	switch c.of[task] {
	case find:
		c.left[req] = int(o.Items)
		for k := range o.Items {
			c.reveal(req, label, int64(k), out, task)
		}
	case label:
		if c.left[req]--; c.left[req] == 0 {
			c.reveal(req, gather, 0, out, slices.Clone(c.open[req][1:])...)
		}
	case gather:
		out.EndedRequests = append(out.EndedRequests, req)
		c.ForgetRequest(req, out)
	}
}

func (c *itemsControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	out.UnreadTasks = append(out.UnreadTasks, c.open[req]...)
	c.open[req] = nil
}

// firstCome batches what is revealed, service by service, on the service's device.
// All that a task reads has ended when it is revealed.
type firstCome struct {
	t       *policy.Tables
	waiting [3][]int32
	busy    [3]bool
	largest [3]int // batch
	mixed   bool   // a batch had several items
	items   map[int32]int64
}

func (p *firstCome) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.TaskRevealed:
		p.waiting[ev.Service] = append(p.waiting[ev.Service], ev.Task)
		p.items[ev.Task] = ev.Key
		if ev.Service == label {
			return // its batch is formed once all items are there
		}
	case policy.BatchFinished:
		p.busy[ev.Batch] = false
	case policy.Cancel:
		out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: ev.Req, Reason: policy.ReasonCancelled})
	}
	for s := range p.waiting {
		n := min(len(p.waiting[s]), int(p.t.Pipelines[s].Batch))
		if p.busy[s] || n == 0 {
			continue
		}
		tasks := p.waiting[s][:n]
		for _, t := range tasks {
			p.mixed = p.mixed || p.items[t] != p.items[tasks[0]]
		}
		p.busy[s], p.largest[s] = true, max(p.largest[s], n)
		stage, device := p.t.Pipelines[s].FirstStage, p.t.DevicesOf(p.t.Pipelines[s].FirstStage)[0]
		out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: int32(s), Model: -1, Batch: int32(s), Size: int32(n), Device: device,
			TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops)), HopCount: 1})
		out.Tasks = append(out.Tasks, tasks...)
		out.Hops = append(out.Hops, policy.Hop{Stage: stage, Device: device, Uplink: -1, Downlink: -1, Start: now, End: now})
		p.waiting[s] = p.waiting[s][n:]
	}
}

// found is how many items there are in what find has made.
func found(service int32, outputs [][]byte) (o policy.Outcome) {
	if service == find {
		o.Items = int32(1 + outputs[0][7]%4)
	}
	return o
}

// infer asks a model for one sample.
func infer(x *Executor, model string, inputs map[string][]byte) ([]byte, error) {
	req := &oip.Request{Model: model, Batch: 1, Received: time.Now()}
	info, refusal := x.Models().Find(model, "")
	if refusal != nil {
		return nil, refusal
	}
	for _, in := range info.Inputs {
		req.Inputs = append(req.Inputs, oip.Tensor{Name: in.Name, Datatype: oip.Uint8, Shape: []int64{1, int64(len(inputs[in.Name]))}, Data: inputs[in.Name]})
	}
	resp, err := x.Infer(context.Background(), req)
	if err != nil {
		return nil, err
	}
	defer resp.Release()
	return bytes.Clone(resp.Outputs[0].Data), nil
}

// Tasks of a fan-out read each its item of what the task before them has made,
// also where a batch holds several items of several requests. The answer is that of
// the models asked one after the other.
func TestItemsOnWorkers(t *testing.T) {
	const n = 12
	ask := func(x *Executor, model string, inputs map[string][]byte) []byte {
		out, err := infer(x, model, inputs)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	inputs, want := make([][]byte, n), make([][]byte, n)
	several := 0
	single := open(t, itemsPlan(1, 1), replayOptions(true))
	for i := range inputs {
		inputs[i] = bytes.Repeat([]byte{byte(i), 7}, 8)
		made := ask(single, "find", map[string][]byte{"x": inputs[i]})
		labels := map[string][]byte{}
		for k, name := range []string{"a", "b", "c", "d"} {
			labels[name] = make([]byte, 8)
			if k < int(found(find, [][]byte{made}).Items) {
				labels[name] = ask(single, "label", map[string][]byte{"item": made[k : k+1]})
				several += min(k, 1)
			}
		}
		want[i] = ask(single, "gather", labels)
	}
	if several == 0 {
		t.Fatal("no sample has several items")
	}
	var pol *firstCome
	o := replayOptions(false)
	o.Control, o.OutcomeOf = newItemsControl, found
	o.NewPolicy = func(t *policy.Tables, _ formats.PolicySpec) (policy.Policy, error) {
		pol = &firstCome{t: t, items: map[int32]int64{}}
		return pol, nil
	}
	x := open(t, itemsPlan(1, 4), o)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if got := ask(x, "find", map[string][]byte{"x": inputs[i]}); !bytes.Equal(got, want[i]) {
				t.Errorf("request %d: %v, expected %v", i, got, want[i])
			}
		})
	}
	wg.Wait()
	x.core.Load().Loop.CallInRound(func() {
		if pol.largest[label] < 2 || !pol.mixed {
			t.Errorf("largest batches %v, several items in one: %v", pol.largest, pol.mixed)
		}
	})
}

// An output that is no whole number of items fails the request with the reason,
// and so does an item that it does not have.
func TestItemsThatAreNotThere(t *testing.T) {
	for _, item := range []int64{3, 8} {
		o := replayOptions(true)
		o.Control, o.OutcomeOf = newItemsControl, func(service int32, out [][]byte) policy.Outcome { return policy.Outcome{Items: 2} }
		o.NewPolicy = func(t *policy.Tables, _ formats.PolicySpec) (policy.Policy, error) {
			return &firstCome{t: t, items: map[int32]int64{}}, nil
		}
		x := open(t, itemsPlan(item, 4), o)
		_, err := infer(x, "find", map[string][]byte{"x": make([]byte, 16)})
		if item == 3 && (err == nil || !strings.Contains(err.Error(), `input "item" takes 3 bytes of the 8 that were made`)) {
			t.Errorf("items of %d bytes: %v", item, err)
		}
		if item == 8 && err != nil { // all of the output is every task's
			t.Error(err)
		}
	}
}
