package executor

import (
	"bytes"
	"context"
	"syscall"
	"testing"
	"time"

	"inferplan/engine/worker"
	"inferplan/formats"
)

// sharesPlan has two stages on two shares of one GPU.
func sharesPlan(infer time.Duration) *formats.Plan {
	p := twoStagePlan(infer, 4, patient)
	p.Pools[0].Count, p.Pools[0].MaxShares = 1, 2
	st := p.Deployment[0].Pipelines[0].Stages
	for i := range st {
		st[i].Share, st[i].GPUs = 2, .5
		st[i].Placement = []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 1}}
	}
	return complete(p)
}

// loseWorker kills a device's worker while another (or itself) is busy, and
// returns when it is back.
func loseWorker(t *testing.T, x *Executor, dev, busy int) {
	t.Helper()
	c := x.core.Load()
	var pid int
	until(func() (now bool) {
		c.Loop.CallInRound(func() {
			pid, now = workersOf(c).Devices[dev].Process.PID(), len(workersOf(c).Devices[busy].InFlight) > 0
		})
		return now
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	until(func() (back bool) {
		c.Loop.CallInRound(func() { back = workersOf(c).Devices[dev].Process != nil && workersOf(c).Devices[dev].Generation == 2 })
		return back
	})
}

// tiersOf are the transfers between stages by tier.
func tiersOf(x *Executor) map[string]int64 {
	out := map[string]int64{}
	for _, tier := range x.Report().Transfer.Tiers {
		if tier.Name != "ingress" && tier.Name != "egress" {
			out[tier.Name] = tier.Transfers
		}
	}
	return out
}

func answersTo(t *testing.T, x *Executor, n int) (out [][]byte) {
	t.Helper()
	for i := range n {
		req := sample(x, 4)
		for k := range req.Inputs[0].Data {
			req.Inputs[0].Data[k] = byte(i*31 + k)
		}
		resp, err := x.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Clone(resp.Outputs[0].Data))
		resp.Release()
	}
	return out
}

// Between two shares of one GPU a tensor stays in its memory, and the answers are
// those of a way through the host's; the report names the tier.
func TestTensorsStayOnTheGPU(t *testing.T) {
	want := answersTo(t, open(t, sharesPlan(time.Millisecond), replayOptions(false)), 6)
	if bytes.Equal(want[0], want[1]) {
		t.Fatal("the answers do not follow from the inputs: nothing can be seen by them")
	}
	t.Setenv(worker.ReplayMemoryEnv, "1")
	x := open(t, sharesPlan(time.Millisecond), replayOptions(false))
	for i, got := range answersTo(t, x, 6) {
		if !bytes.Equal(got, want[i]) {
			t.Errorf("request %d is answered otherwise through the GPU's memory", i)
		}
	}
	if got := tiersOf(x); got["ipc"] != 6 || len(got) != 1 {
		t.Errorf("tensors crossed by %v", got)
	}
	// On two GPUs it leaves them.
	apart := open(t, twoStagePlan(time.Millisecond, 4, patient), replayOptions(false))
	answersTo(t, apart, 2)
	if got := tiersOf(apart); got["shm"] != 2 || len(got) != 1 {
		t.Errorf("between two GPUs tensors crossed by %v", got)
	}
}

// The worker of the first stage dies: its GPU memory is gone, and what lies there
// with it. Whatever is answered is answered right, nothing is left held, and
// afterwards tensors go through the host's memory.
func TestLostGPUMemory(t *testing.T) {
	t.Setenv(worker.ReplayMemoryEnv, "1")
	x := open(t, sharesPlan(5*time.Millisecond), replayOptions(false))
	want := answersTo(t, x, 1)
	done := make(chan map[string]int)
	go func() { done <- burst(x, 0, 40, 2) }()
	loseWorker(t, x, 0, 1)
	got := <-done
	if total(got) != 80 {
		t.Errorf("ended as %v", got)
	}
	for how := range got {
		if how != "served" && how != "worker_lost" && how != "deadline" {
			t.Errorf("ended as %v", got)
		}
	}
	before := tiersOf(x)
	if again := answersTo(t, x, 1); !bytes.Equal(again[0], want[0]) {
		t.Error("another answer after the worker came back")
	}
	if after := tiersOf(x); after["ipc"] != before["ipc"] || after["shm"] != before["shm"]+1 {
		t.Errorf("tensors crossed by %v, before by %v", after, before)
	}
	if requests, slots := held(x); requests != 0 || slots != 0 {
		t.Errorf("%d requests and %d slots are still held", requests, slots)
	}
}
