package sim_test

import (
	"context"
	"math"
	"testing"
	"time"

	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// A report says how long tensors were under way, how many paths were looked
// for, and what each model attained at each load of a sweep.
func TestReportOfDispatching(t *testing.T) {
	sc := scenario(t, policytest.Hundred().Plan(), 0.9, time.Second)
	res, err := sim.Replicate(context.Background(), sc, 2)
	if err != nil {
		t.Fatal(err)
	}
	tt := res.Report.TransferTimes
	if tt == nil || tt.Count != res.Transfers.Count || tt.P99US.D() != res.Transfers.P99 || tt.MeanUS < 1 {
		t.Errorf("transfer times %+v, want %+v", tt, res.Transfers)
	}
	if want := float64(res.Probes) / float64(res.DispatchedBatches); want < 1 || math.Abs(res.Report.ProbesPerBatch-want) > 1e-3 {
		t.Errorf("%v probes per batch, want %v", res.Report.ProbesPerBatch, want)
	}
	swept, err := sim.Sweep(context.Background(), sc, []float64{0.5, 0.9, 1.6}, 2)
	if err != nil {
		t.Fatal(err)
	}
	rep, events := swept.SweepReport()
	if len(rep.Curve) != 3 || rep.Load != 1.6 || events <= res.Events {
		t.Fatalf("curve %+v of load %v, %d events", rep.Curve, rep.Load, events)
	}
	if at := rep.Curve[1]; at.Load != 0.9 || at.Attainment != res.Report.Attainment || at.Models[0].P99US != res.Report.Models[0].Latency.P99US {
		t.Errorf("%+v at 0.9, alone %+v", at, res.Report.Counts)
	}
	if rep.Curve[0].Models[0].Attainment < 0.999 || rep.Curve[2].Models[0].Attainment > 0.9 {
		t.Errorf("attainment %v at half the rate, %v at 1.6 times it", rep.Curve[0].Models[0].Attainment, rep.Curve[2].Models[0].Attainment)
	}
	if _, err := sim.Sweep(context.Background(), sc, []float64{0}, 1); err == nil {
		t.Error("a load of 0 was simulated")
	}
}
