package executor

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/executor/oip"
	"inferplan/executor/tasks"
	"inferplan/formats"
	"inferplan/policy"
	policyflow "inferplan/policy/flow"
	"inferplan/policy/workflow"
)

// router are two applications that share services. A request of either asks a
// service of the application's own, whose output says which of two others, which
// both applications have, answers it.
type router struct {
	services []string
	batch    int
	infer    []time.Duration // of a batch of one, by service
	kind     string          // of devices
	real     bool            // tensors are those of the models' files
	devices  int
	bytes    []int64 // by service
	memory   int64   // by device
	load     time.Duration
	slo      time.Duration
	policy   string

	tables *policy.Tables // once it is served
}

// ways are, by application, the service that a request asks first and the two
// others.
var ways = [][3]int32{{0, 2, 3}, {1, 3, 4}}

var applications = []string{"even", "odd"}

// plan has a model for each service.
func (r *router) plan() *formats.Plan {
	p := onePlan(time.Millisecond, r.batch, 1, r.slo)
	p.Pools[0].Device, p.Pools[0].Count = r.kind, len(r.services)
	first := p.Deployment[0]
	p.Deployment = nil
	for i, name := range r.services {
		m := first
		m.Model = name
		if r.real {
			m.Inputs, m.Outputs = nil, nil
		}
		stage := first.Pipelines[0].Stages[0]
		stage.Device, stage.InferUS = r.kind, flat(r.infer[i], r.batch)
		stage.Placement = []formats.Placement{{FirstDevice: i, PerDevice: 1, Replicas: 1}}
		m.Pipelines = []formats.Pipeline{{Batch: r.batch, RPS: 100, Stages: []formats.Stage{stage}}}
		p.Deployment = append(p.Deployment, m)
	}
	return complete(p)
}

// share makes the tables of the plan's models those of the applications: every
// device can run every service, and none holds all of them.
func (r *router) share(t *policy.Tables) {
	first := t.Models[0]
	t.Models = nil
	for _, name := range applications {
		m := first
		m.Name, m.FirstPipeline, m.NumPipelines, m.SLO = name, 0, int32(len(r.services)), r.slo
		t.Models = append(t.Models, m)
	}
	t.Devices, t.KindCounts[0] = t.Devices[:r.devices], int32(r.devices)
	t.StageDevices, t.Memory, t.Resident = nil, nil, make([][]int32, r.devices)
	for d := range t.Devices {
		t.StageDevices = append(t.StageDevices, int32(d))
		t.Devices[d].Instance = -1
		t.Memory = append(t.Memory, r.memory)
	}
	for s := range t.Stages {
		t.Stages[s].FirstDevice, t.Stages[s].NumDevices = 0, int32(r.devices)
		t.Pipelines[s].Model = -1
		t.Networks[s].Bytes, t.Networks[s].LoadTimes = r.bytes[s], [][2]time.Duration{{r.load, 3 * r.load}}
	}
	t.HandledEvents, t.KindTables = workflow.HandledEvents, &policyflow.WorkflowTables{TransferTimes: make([]policyflow.TransferTime, len(t.Services))}
}

// options serve the applications.
func (r *router) options(o Options) Options {
	o.Control = func(*policy.Tables) policy.Control { return &routerControl{} }
	o.NewPolicy = func(t *policy.Tables, _ formats.PolicySpec) (policy.Policy, error) {
		r.share(t)
		opt, err := workflow.OptionsByName(r.policy)
		r.tables = t
		return workflow.New(t, opt), err
	}
	return o
}

// routerControl asks the router, then what its outcome says.
type routerControl struct {
	requests []routed // by request
	tasks    []int32  // request by task
}

type routed struct {
	app   int32
	tasks []int32
}

func (c *routerControl) BeginRequest(req, model int32, out *policy.RevealedTasks) {
	for int(req) >= len(c.requests) {
		c.requests = append(c.requests, routed{})
	}
	c.requests[req] = routed{app: model, tasks: c.requests[req].tasks[:0]}
	c.reveal(req, ways[model][0], out)
}

// reveal adds a task that reads the client's input.
func (c *routerControl) reveal(req, service int32, out *policy.RevealedTasks) {
	t := out.TakeSlot()
	for int(t) >= len(c.tasks) {
		c.tasks = append(c.tasks, 0)
	}
	c.tasks[t] = req
	c.requests[req].tasks = append(c.requests[req].tasks, t)
	out.Tasks = append(out.Tasks, policy.RevealedTask{Req: req, Task: t, Service: service, FirstInput: int32(len(out.Inputs)), NumInputs: 1})
	out.Inputs = append(out.Inputs, -1)
}

func (c *routerControl) TaskEnded(task int32, o policy.Outcome, out *policy.RevealedTasks) {
	req := c.tasks[task]
	if q := &c.requests[req]; len(q.tasks) == 1 {
		c.reveal(req, ways[q.app][1+o.Branch], out)
		return
	}
	out.EndedRequests = append(out.EndedRequests, req)
	c.ForgetRequest(req, out)
}

func (c *routerControl) ForgetRequest(req int32, out *policy.RevealedTasks) {
	if int(req) < len(c.requests) {
		out.UnreadTasks = append(out.UnreadTasks, c.requests[req].tasks...)
		c.requests[req].tasks = c.requests[req].tasks[:0]
	}
}

// parity is what the replayed router says.
func parity(_ int32, outputs [][]byte) policy.Outcome {
	return policy.Outcome{Branch: int32(outputs[0][0] & 1)}
}

// replayRouter has five services, of which a device holds three.
func replayRouter(devices int, infer, load time.Duration) *router {
	r := &router{services: []string{"r0", "r1", "a", "b", "c"}, batch: 4, kind: "L4", devices: devices, memory: 300, load: load, slo: patient, policy: "dyorc"}
	for range r.services {
		r.infer, r.bytes = append(r.infer, infer), append(r.bytes, 100)
	}
	return r
}

// expected are the answers to inputs, by application, of services asked one after
// the other.
func (r *router) expected(t *testing.T, inputs [][]byte) (want [2][][]byte) {
	t.Helper()
	x := open(t, r.plan(), replayOptions(true))
	for app, way := range ways {
		for _, in := range inputs {
			full := func(s int32) []byte { return call(t, x, r.batch, r.services[s], in)[:8] }
			want[app] = append(want[app], full(way[1+parity(0, [][]byte{full(way[0])}).Branch]))
		}
	}
	return want
}

// route asks an application for an answer.
func route(ctx context.Context, x *Executor, app int, input []byte) ([]byte, error) {
	req := &oip.Request{Model: applications[app], Batch: 1, Received: time.Now(),
		Inputs: []oip.Tensor{{Name: x.core.Load().ServedModels.Models[app].Inputs[0].Name, Datatype: oip.FP32, Shape: []int64{1, 4}, Data: input}}}
	resp, err := x.Infer(ctx, req)
	if err != nil {
		return nil, err
	}
	defer resp.Release()
	return bytes.Clone(resp.Outputs[0].Data), nil
}

// nothingHeld waits until no request, task, output, slot or byte of a segment is
// held but for what networks on devices have.
func nothingHeld(t *testing.T, x *Executor) {
	t.Helper()
	c := x.core.Load()
	f := c.Answerer.(*tasks.TaskAnswerer)
	left := "?"
	for range 2500 {
		if left == "" {
			return
		}
		q, s := held(x)
		c.Loop.CallInRound(func() {
			left = ""
			if n := f.Tasks.Reveals.SlotsInUse(); q+s+n > 0 || f.UsedBytes > 0 {
				left = fmt.Sprintf("%d requests, %d slots, %d tasks, %d bytes", q, s, n, f.UsedBytes)
			}
			for _, d := range workersOf(c).OwnDevices {
				bytes := int64(0)
				for _, e := range d.Networks.Arena.FreeExtents {
					bytes += e.To - e.From
				}
				for _, s := range d.Slots {
					if s != nil {
						bytes += s.Layout.Stride * int64(s.Layout.Slots)
					}
				}
				if d.Process != nil && !d.Networks.IsLoading && bytes != int64(len(d.Segment.Data)) {
					left += fmt.Sprintf("; device %d: %d bytes of %d", d.Index, bytes, len(d.Segment.Data))
				}
			}
		})
		time.Sleep(2 * time.Millisecond)
	}
	t.Error("still held:", left)
}
