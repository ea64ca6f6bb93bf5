package vqueue_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/bench/qlm/rules"
	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/vqueue"
	"inferplan/testkit/policytest"
)

// The time of a request on a device of kind 0: its prefill, and each output token.
const (
	prefillSeconds = 0.05
	decodeSeconds  = 0.004
)

// instanceTables makes tables of instances that serve two classes each of some networks. The
// last network does not run on kind 1.
func instanceTables(kinds []int32, networks int, sequences int32) *policy.Tables {
	planTables := &policy.Tables{Kinds: []string{"big", "small"}, KindCounts: make([]int32, 2)}
	own := &vqueue.Tables{MegaTokens: make([]int32, 2*networks)}
	for d, k := range kinds {
		planTables.Devices = append(planTables.Devices, policy.Device{Kind: k, Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: int32(d)})
		planTables.Instances = append(planTables.Instances, policy.Instance{MaxSequences: sequences, TokenBudget: 2048, ProgressTokens: 16, KVTokens: 20_000})
		planTables.Resident, planTables.Memory = append(planTables.Resident, []int32{int32(d % networks)}), append(planTables.Memory, 1)
		planTables.KindCounts[k]++
	}
	for n := range networks {
		load := [2]time.Duration{800 * time.Millisecond, 5 * time.Second}
		planTables.Networks = append(planTables.Networks, policy.Network{Name: fmt.Sprint("n", n), Bytes: 1, BaseNetwork: -1, LoadTimes: [][2]time.Duration{load, load}})
		for c, slo := range []time.Duration{2 * time.Second, 20 * time.Second} {
			m := int32(len(planTables.Models))
			first := int32(len(planTables.StageDevices))
			for d, k := range kinds {
				if k == 0 || n < networks-1 {
					planTables.StageDevices = append(planTables.StageDevices, int32(d))
				}
			}
			planTables.Models = append(planTables.Models, policy.Model{Name: fmt.Sprint("n", n), Class: fmt.Sprint(c), SLO: slo, Percentile: .99, FirstPipeline: m, NumPipelines: 1})
			planTables.Services = append(planTables.Services, policy.Service{Name: fmt.Sprint(m), FirstPipeline: m, NumPipelines: 1})
			planTables.Pipelines = append(planTables.Pipelines, policy.Pipeline{Model: m, Service: m, Network: int32(n), Batch: 1, FirstStage: m, NumStages: 1})
			planTables.Stages = append(planTables.Stages, policy.Stage{Pipeline: m, FirstDevice: first, NumDevices: int32(len(planTables.StageDevices)) - first, LastBlock: 1, Infer: []time.Duration{time.Millisecond}})
			own.MegaTokens[m] = 350
			for range 2 {
				for k := range 2 {
					slower := float64(1 + k)
					r := vqueue.RCT{Alpha: slower * prefillSeconds / 200 / float64(sequences), Beta: slower * decodeSeconds / float64(sequences),
						Prefill: slower * prefillSeconds, Decode: slower * decodeSeconds, Batch: float64(sequences), PromptMean: 200, PromptVar: 1e4, OutputMean: 100, OutputVar: 2500}
					if k == 1 && n == networks-1 {
						r.Batch = 0
					}
					own.RCT = append(own.RCT, r)
				}
			}
		}
	}
	planTables.KindTables = own
	return planTables
}

// options draws any options of the policy.
func options(t *rapid.T) vqueue.Options {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	o := vqueue.Options{
		Rule: vqueue.QueueRule(rapid.IntRange(0, 2).Draw(t, "rule")), GroupBatches: rapid.SampledFrom([]float64{0, 0.5, 1, 16}).Draw(t, "delta"),
		MemberOrder: vqueue.MemberOrder(rapid.IntRange(0, 1).Draw(t, "members")), OneOpenGroup: flag("one open"), AppendGroups: flag("append"),
		ReplanOnViolation: flag("on violation"), NoReplan: flag("still"), DropLate: flag("admission"), ReplanInterval: 50 * time.Millisecond,
		FollowInstances: flag("follow"), QueueLimit: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "queue limit"), EDFAbove: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "edf above"),
	}
	if flag("random") {
		o.NewDealer = rules.Random
	}
	if flag("pooled") {
		o.NewDispatcher = rules.Gateway
	}
	if flag("scale") {
		addScaler(&o, rules.Scale{From: 1, Delay: 100 * time.Millisecond, Hold: 200 * time.Millisecond})
	}
	for l := range o.DisabledLSOs {
		o.DisabledLSOs[l] = flag(fmt.Sprint("without ", vqueue.LSO(l)))
	}
	return o
}

// drawClasses draws what the classes ask for: figures, waiting times, priorities, caps and
// limits of what runs beside them.
func drawClasses(t *rapid.T, tab *policy.Tables, caps bool) {
	own := vqueue.TablesOf(tab)
	for range tab.Devices[1:] {
		for range tab.Models {
			if caps {
				own.Caps = append(own.Caps, int32(rapid.IntRange(-1, 3).Draw(t, "cap")))
			}
		}
	}
	for m := range tab.Models {
		x := &tab.Models[m]
		x.SLOFigure = rapid.SampledFrom([]string{"", formats.FigureTTFT, formats.FigureTPOT}).Draw(t, "of")
		x.Priority = int32(rapid.IntRange(0, 1).Draw(t, "priority"))
		x.WaitSLO = rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond}).Draw(t, "waiting")
		if caps {
			own.Caps = append(own.Caps, int32(rapid.IntRange(-1, 3).Draw(t, "cap")))
		}
		for range tab.Kinds {
			own.MaxSequences = append(own.MaxSequences, int32(rapid.IntRange(0, 3).Draw(t, "sequences")))
		}
	}
}

// Whatever an interpreter may do to it within the contract, with any options, the
// policy answers or drops every request once, and does the same when it is told the
// same again.
func TestPolicyAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := instanceTables([]int32{0, 1, 0}[:rapid.IntRange(1, 3).Draw(t, "instances")], rapid.IntRange(1, 3).Draw(t, "networks"), 4)
		opt := options(t)
		if rapid.Bool().Draw(t, "partition") {
			opt.AllowedDevices = rules.Partition(tab)
		}
		shepherd := rapid.IntRange(0, 3).Draw(t, "shepherd") == 0
		if shepherd {
			opt.NewDispatcher = rules.Shepherd
		}
		drawClasses(t, tab, !shepherd)
		setAloneSpeedup(tab, rapid.SampledFrom([]float64{0, 2, 8}).Draw(t, "less for a token alone"))
		pol, err := vqueue.New(tab, opt)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		turns := rapid.SampledFrom([]int32{0, 1, 5}).Draw(t, "sessions")
		rec := conform.NewRecorder(&sessionAdder{pol, turns}, &log)
		foe := &policytest.Adversary{Tables: tab, Policy: rec, Check: pol.Check, Rand: seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary")}
		if err := foe.Run(rapid.IntRange(10, 500).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
		if n := pol.OpenRequests(); n > 0 {
			t.Fatalf("%d requests are still with the policy", n)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		again, _ := vqueue.New(tab, opt)
		if _, err := conform.Replay(&log, &sessionAdder{again, turns}); err != nil {
			t.Fatal("told the same again:", err)
		}
	})
}

// sessionAdder gives requests a session: one of so many, by their numbers, or none.
type sessionAdder struct {
	*vqueue.Policy
	sessions int32
}

func (p *sessionAdder) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	told := *ev
	if ev.Kind == policy.Arrival && p.sessions > 0 {
		told.Key = 1 + int64(ev.Req%p.sessions)
	}
	p.Policy.Handle(now, &told, out)
}
