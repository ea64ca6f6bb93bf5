package executor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"inferplan/executor/oip"
	"inferplan/executor/tasks"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/testkit/policytest"
)

// diamond serves the application that uses all of the contract on two fake
// servers, one for stages and one for instances.
func diamond(t *testing.T, slo time.Duration, change func(*Options)) (x *Executor, pol *policytest.Diamond, servers [2]*fakeServer, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	o := replayOptions(true)
	o.OutcomeOf = halved
	if change != nil {
		change(&o)
	}
	x = &Executor{opt: o, metrics: newExecutorMetrics()}
	x.opt.SetDefaults()
	tables := policytest.DiamondTables()
	tables.Models[0].SLO = slo
	pol = policytest.NewDiamond(tables)
	kinds := &turn.Factories{Answerers: kindsServed(&x.opt).Answerers}
	kinds.DefaultBackend = func(c *turn.Core, _ []bool) (turn.Backend, error) {
		servers[0] = newFakeServer(c)
		return servers[0], nil
	}
	kinds.Backends = []func(c *turn.Core) (turn.Backend, []int32){func(c *turn.Core) (turn.Backend, []int32) {
		servers[1] = newFakeServer(c)
		return servers[1], []int32{2}
	}}
	c := &turn.Core{Options: &x.opt.CoreOptions, Factories: kinds, Plan: &formats.Plan{Kind: "diamond"}, Tables: tables, Control: &policytest.DiamondControl{}, Policy: pol}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	number := []turn.Tensor{{Name: "x", Datatype: oip.Uint32, Shape: []int64{-1, 1}, Bytes: 4}}
	for _, s := range c.Services {
		s.Inputs, s.Outputs = number, number
	}
	c.Services[policytest.Merge].Inputs = append(number[:1:1], number...)
	c.ServedModels.JoinTensors(tables, c.Services)
	if err := c.ServedModels.BuildCatalog(c.Options); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Backends.AddBackends(c), c.StartLoop(log)); err != nil {
		t.Fatal(err)
	}
	x.install(c)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x, pol, servers, log
}

// ask sends numbers and checks their answers.
func ask(ctx context.Context, x *Executor, numbers ...uint32) error {
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint32(data, n)
	}
	req := &oip.Request{Model: "diamond", Batch: len(numbers), Received: time.Now(),
		Inputs: []oip.Tensor{{Name: "x", Datatype: oip.Uint32, Shape: []int64{int64(len(numbers)), 1}, Data: data}}}
	resp, err := x.Infer(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Release()
	for i, n := range numbers {
		if got := binary.LittleEndian.Uint32(resp.Outputs[0].Data[4*i:]); got != written(n) {
			return fmt.Errorf("the answer to %d is %d, expected %d", n, got, written(n))
		}
	}
	return nil
}

// idle waits until nothing is held any more, and closes.
func idle(t *testing.T, x *Executor, pol *policytest.Diamond, log *bytes.Buffer) {
	t.Helper()
	c := x.core.Load()
	f := c.Answerer.(*tasks.TaskAnswerer)
	var left string
	for range 2000 {
		c.Loop.CallInRound(func() {
			m := c.ServedModels.Models[0]
			left = ""
			if n := slotsOf(c); n+f.Tasks.Reveals.SlotsInUse()+pol.Open() > 0 || f.UsedBytes > 0 || m.Waiting.Load()+m.Running.Load() != 0 {
				left = fmt.Sprintf("%d requests, %d tasks, %d bytes, %d with the policy, gauges %d and %d", n, f.Tasks.Reveals.SlotsInUse(), f.UsedBytes, pol.Open(), m.Waiting.Load(), m.Running.Load())
			}
		})
		if left == "" {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if left != "" {
		t.Error("still held:", left)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	tables := policytest.DiamondTables()
	if n, err := conform.Replay(log, policytest.NewDiamond(tables)); err != nil || n == 0 {
		t.Errorf("told the same again, after %d calls: %v", n, err)
	}
}

// The application that uses all of the contract is served: requests with a
// fan-out and a merge, an instance beside devices, loads, places, evictions and
// re-plans. Every answer is the right one, and the log replays to the same bytes.
func TestDiamondIsServed(t *testing.T) {
	x, pol, servers, log := diamond(t, patient, nil)
	var wg sync.WaitGroup
	for client := range uint32(6) {
		wg.Go(func() {
			for k := range uint32(15) {
				if err := ask(context.Background(), x, 100*client+k, 100*client+k+50); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	x.core.Load().Loop.CallInRound(func() {
		if pol.Evicted == 0 || pol.Loads == 0 || pol.Plans == 0 || servers[1].ran[policytest.Write] < 180 || servers[0].ran[policytest.Merge] == 0 {
			t.Errorf("%d evicted, %d loads, %d re-plans, batches %v and %v", pol.Evicted, pol.Loads, pol.Plans, servers[0].ran, servers[1].ran)
		}
	})
	if r := x.Report(); r.Completed != 180 || r.Dropped != 0 {
		t.Errorf("report %+v", r.Counts)
	}
	idle(t, x, pol, log)
}

// The same in trouble: deadlines that cannot all be met, clients that go away,
// devices that are lost and come back, batches that come back. Everybody has one
// answer, never a wrong one, and nothing is held in the end.
func TestDiamondInTrouble(t *testing.T) {
	x, pol, servers, log := diamond(t, 60*time.Millisecond, nil)
	c := x.core.Load()
	stop := make(chan struct{})
	var wg, clients sync.WaitGroup
	wg.Go(func() {
		rng := seeded.New(1, "devices")
		for {
			d := int32(rng.IntN(3))
			c.Inbox.PostEvents(turn.BackendEvent{Kind: fakeLost, Device: d})
			time.Sleep(3 * time.Millisecond)
			c.Inbox.PostEvents(turn.BackendEvent{Kind: fakeBack, Device: d})
			c.Loop.CallInRound(func() {
				s := servers[rng.IntN(2)]
				s.refuse = []policy.ReturnReason{policy.ReturnFull, policy.ReturnFailed, policy.ReturnNotLoaded, policy.ReturnRefused}[rng.IntN(4)]
			})
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var mu sync.Mutex
	how := map[string]int{}
	for client := range uint32(10) {
		clients.Go(func() {
			rng := seeded.New(1, fmt.Sprintf("client/%d", client))
			for range 40 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(40_000))*time.Microsecond, cancel)
				}
				err := ask(ctx, x, rng.Uint32()%1000, rng.Uint32()%1000)
				cancel()
				mu.Lock()
				how[reasonOf(err)]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	close(stop)
	wg.Wait()
	for reason := range how {
		if reason != "served" && reason != "cancelled" && reason != "deadline" {
			t.Errorf("ended as %v", how)
		}
	}
	if how["deadline"] == 0 || how["cancelled"] == 0 {
		t.Errorf("ended as %v: expected some of each", how)
	}
	r := x.Report()
	if r.Requests != 800 || r.Requests != r.Completed+r.Dropped {
		t.Errorf("report %+v", r.Counts)
	}
	c.Loop.CallInRound(func() {
		if pol.Returned == 0 {
			t.Error("no batch came back")
		}
	})
	idle(t, x, pol, log)
}

// What has no room in the store is refused, and its room is free again.
func TestStoreHasBounds(t *testing.T) {
	x, pol, _, log := diamond(t, patient, func(o *Options) { o.StoreBytes = 7 })
	err := ask(context.Background(), x, 5)
	if how := reasonOf(err); how != "queue_full" {
		t.Errorf("ended as %s: %v", how, err)
	}
	idle(t, x, pol, log)
}
