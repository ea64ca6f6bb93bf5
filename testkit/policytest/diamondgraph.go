package policytest

import (
	"slices"
	"time"

	"inferplan/policy"
)

// DiamondTables are the tables of an application that uses all of the contract:
// a request is split, goes left and right at once, is merged and written up by a
// language model. Device 0 holds all networks, device 1 has room for two of
// them, device 2 is an instance of two sequences.
func DiamondTables() *policy.Tables {
	ms := time.Millisecond
	t := &policy.Tables{
		Models: []policy.Model{{Name: "diamond", SLO: 400 * ms, Percentile: .99, RPS: 40, NumPipelines: int32(numServices)}},
		Devices: []policy.Device{
			{Share: 1, Uplink: -1, Downlink: -1, Instance: -1},
			{Share: 1, GPU: 1, Uplink: -1, Downlink: -1, Instance: -1},
			{Kind: 1, Share: 1, Uplink: -1, Downlink: -1},
		},
		Instances: []policy.Instance{{MaxSequences: 2, TokenBudget: 8, ProgressTokens: 4, KVTokens: 1000}},
		Kinds:     []string{"device", "instance"}, KindCounts: []int32{2, 1},
		Resident: [][]int32{{Split, Left, Right, Merge}, {Split}, {Write}},
		Memory:   []int64{0, 2, 0},
	}
	for s, name := range []string{"split", "left", "right", "merge", "write"} {
		i := int32(s)
		stage := policy.Stage{Pipeline: i, FirstDevice: int32(len(t.StageDevices)), NumDevices: 2, LastBlock: 1, Infer: []time.Duration{4 * ms, 6 * ms}}
		pl := policy.Pipeline{Service: i, Network: i, Batch: 2, FirstStage: i, NumStages: 1}
		on := []int32{0, 1}
		if i == Write {
			stage.NumDevices, stage.Infer, pl.Batch, on = 1, stage.Infer[:1], 1, []int32{2}
		}
		t.Stages, t.Pipelines, t.StageDevices = append(t.Stages, stage), append(t.Pipelines, pl), append(t.StageDevices, on...)
		t.Services = append(t.Services, policy.Service{Name: name, FirstPipeline: i, NumPipelines: 1})
		t.Networks = append(t.Networks, policy.Network{Name: name, Bytes: 1, BaseNetwork: -1, LoadTimes: [][2]time.Duration{{ms, 3 * ms}, {ms, 3 * ms}}})
	}
	return t
}

// DiamondControl says which tasks a request of the diamond has. Branch 1 of the
// split leaves out the right side.
type DiamondControl struct {
	requests []diamondRequest
	tasks    []diamondTask
}

type diamondRequest struct {
	tasks []int32
	sides int // that have still to end
}

type diamondTask struct{ req, service int32 }

// BeginRequest implements policy.Control.
func (c *DiamondControl) BeginRequest(req, _ int32, out *policy.RevealedTasks) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, diamondRequest{})
	}
	c.requests[req] = diamondRequest{tasks: c.requests[req].tasks[:0]}
	c.reveal(req, Split, out, -1)
}

// reveal adds a task that reads others, and gives its slot.
func (c *DiamondControl) reveal(req, service int32, out *policy.RevealedTasks, inputs ...int32) {
	t := out.TakeSlot()
	for int(t) >= len(c.tasks) {
		c.tasks = append(c.tasks, diamondTask{})
	}
	c.tasks[t] = diamondTask{req, service}
	c.requests[req].tasks = append(c.requests[req].tasks, t)
	out.Tasks = append(out.Tasks, policy.RevealedTask{Req: req, Task: t, Service: service, FirstInput: int32(len(out.Inputs)), NumInputs: int32(len(inputs))})
	out.Inputs = append(out.Inputs, inputs...)
}

// TaskEnded implements policy.Control.
func (c *DiamondControl) TaskEnded(task int32, o policy.Outcome, out *policy.RevealedTasks) {
	t := c.tasks[task]
	q := &c.requests[t.req]
	switch t.service {
	case Split:
		q.sides = 1
		c.reveal(t.req, Left, out, task)
		if o.Branch == 0 {
			q.sides = 2
			c.reveal(t.req, Right, out, task)
		}
	case Left, Right:
		if q.sides--; q.sides > 0 {
			return
		}
		sides := slices.Clone(q.tasks[1:])
		out.UnreadTasks = append(out.UnreadTasks, q.tasks[0]) // both have read it
		q.tasks = q.tasks[1:]
		c.reveal(t.req, Merge, out, sides...)
	case Merge:
		c.reveal(t.req, Write, out, task)
	case Write:
		out.EndedRequests = append(out.EndedRequests, t.req)
		c.ForgetRequest(t.req, out)
	}
}

// ForgetRequest implements policy.Control.
func (c *DiamondControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) < len(c.requests) {
		out.UnreadTasks = append(out.UnreadTasks, c.requests[req].tasks...)
		c.requests[req].tasks = c.requests[req].tasks[:0]
	}
}
