package main

import (
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/report"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
)

// verdict is a run against its plan, as it is printed and written.
type verdict struct {
	PeakRPS  float64 `json:"peak_rps"`
	Trace    string  `json:"trace"`
	Requests int     `json:"requests"`
	Lost     int     `json:"lost"`
	Switches int64   `json:"switches"`

	Accuracy   float64 `json:"accuracy"`
	Planned    float64 `json:"planned"`    // of the gears under which the requests came
	HalfWidth  float64 `json:"half_width"` // 95 %, of the difference
	Within     bool    `json:"within"`
	AsRecorded float64 `json:"as_recorded"` // share of the answers that the records foretell, model and verdict

	MeanMS      float64 `json:"mean_ms"`
	P50MS       float64 `json:"p50_ms"`
	P95MS       float64 `json:"p95_ms"`
	SimP50MS    float64 `json:"simulated_p50_ms"`
	SimP95MS    float64 `json:"simulated_p95_ms"`
	DrawnP95MS  float64 `json:"drawn_p95_ms"`   // with the recorded service times at random
	PlanP95MS   float64 `json:"planned_p95_ms"` // forecast: with the plan's times
	Off         float64 `json:"off"`            // replayed over served p95, less one
	PlanOff     float64 `json:"planned_off"`    // likewise of the forecast
	SimSwitches int64   `json:"simulated_switches"`
	Batches     int     `json:"batches"`
	SimBatches  int     `json:"simulated_batches"`
	Same        int     `json:"same_batches"`  // before the decision logs part for the first time
	Again       float64 `json:"batches_again"` // share of the batches that the simulator starts within 1 ms
	DeviceS     float64 `json:"device_seconds"`
	LateMS      float64 `json:"sent_late_p95_ms"`
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// judge compares a run with its plan. Planned is the accuracy of the gears on
// the samples planned on; the interval of the difference allows for the choice
// of these and of the held-out samples, which come again and again.
func (f *family) judge(plan *formats.Plan, t *policy.Tables, run *served) verdict {
	v := verdict{Switches: run.switches, DeviceS: run.device.Seconds(), LateMS: ms(run.late)}
	var took []time.Duration
	residual := map[int]*[2]float64{} // by row: sum of the differences, and their number
	known := 0
	for _, a := range run.answers[run.lead:] {
		v.Requests++
		if a.lost {
			v.Lost++
			continue
		}
		took = append(took, a.took)
		v.MeanMS += ms(a.took)
		planned := formats.GearOf(plan).Gears[a.gear].Accuracy
		v.Planned += planned
		d := -planned
		if a.correct {
			v.Accuracy++
			d++
		}
		if residual[a.row] == nil {
			residual[a.row] = new([2]float64)
		}
		residual[a.row][0] += d
		residual[a.row][1]++
		if correct, by := f.expected(t, a.gear, a.row); correct == a.correct && policygear.TablesOf(t).PipelineModels[by] == a.model {
			known++
		}
	}
	n := float64(len(took))
	v.Accuracy, v.Planned, v.MeanMS, v.AsRecorded = v.Accuracy/n, v.Planned/n, v.MeanMS/n, float64(known)/n
	v.HalfWidth = 1.96 * math.Sqrt(clustered(residual)+v.Planned*(1-v.Planned)/float64(formats.GearOf(plan).Samples))
	v.Within = math.Abs(v.Accuracy-v.Planned) <= v.HalfWidth
	slices.Sort(took)
	v.P50MS, v.P95MS = ms(report.Percentile(took, .5)), ms(report.Percentile(took, .95))
	return v
}

// clustered is the variance of a mean over requests whose samples repeat.
func clustered(residual map[int]*[2]float64) float64 {
	rows := make([]int, 0, len(residual))
	sum, n := 0.0, 0.0
	for row, r := range residual {
		rows = append(rows, row)
		sum += r[0]
		n += r[1]
	}
	slices.Sort(rows)
	mean, out := sum/n, 0.0
	for _, row := range rows {
		d := residual[row][0] - mean*residual[row][1]
		out += d * d
	}
	return out / (n * n)
}

// pair is a gear plan against one model on the same requests.
type pair struct {
	PeakRPS    float64 `json:"peak_rps"`
	Trace      string  `json:"trace"`
	Model      string  `json:"single_model"`
	Requests   int     `json:"requests"`
	Lost       int     `json:"lost"`
	GearS      float64 `json:"gear_device_seconds"`
	SingleS    float64 `json:"single_device_seconds"`
	Ratio      float64 `json:"ratio"`
	GearCPU    float64 `json:"gear_cpu_seconds"` // inside the engine
	SingleCPU  float64 `json:"single_cpu_seconds"`
	Difference float64 `json:"accuracy_difference"` // gears less the model, request by request
	HalfWidth  float64 `json:"half_width"`          // 95 %
	GearP95    float64 `json:"gear_p95_ms"`
	SingleP95  float64 `json:"single_p95_ms"`

	residual map[int]*[2]float64
}

// comparePair compares two runs of the same requests.
func comparePair(gears, single *served) pair {
	p := pair{GearS: gears.device.Seconds(), SingleS: single.device.Seconds(), GearCPU: gears.cpu, SingleCPU: single.cpu, residual: map[int]*[2]float64{}}
	p.Ratio = p.GearS / p.SingleS
	var took [2][]time.Duration
	for i := gears.lead; i < len(gears.answers); i++ {
		a, b := &gears.answers[i], &single.answers[i]
		p.Requests++
		if a.lost || b.lost {
			p.Lost++
			continue
		}
		took[0], took[1] = append(took[0], a.took), append(took[1], b.took)
		d := 0.0
		if a.correct {
			d++
		}
		if b.correct {
			d--
		}
		p.Difference += d
		if p.residual[a.row] == nil {
			p.residual[a.row] = new([2]float64)
		}
		p.residual[a.row][0] += d
		p.residual[a.row][1]++
	}
	p.Difference /= float64(len(took[0]))
	p.HalfWidth = 1.96 * math.Sqrt(clustered(p.residual))
	for i := range took {
		slices.Sort(took[i])
	}
	p.GearP95, p.SingleP95 = ms(report.Percentile(took[0], .95)), ms(report.Percentile(took[1], .95))
	return p
}

// pairsOutcome is the outcome of the pairs together.
type pairsOutcome struct {
	Pairs      int        `json:"pairs"`
	Ratio      float64    `json:"ratio"`    // geometric mean of gear over single device-seconds
	Interval   [2]float64 `json:"interval"` // 95 %
	CPURatio   float64    `json:"cpu_ratio"`
	CPUBetween [2]float64 `json:"cpu_interval"`
	Difference float64    `json:"accuracy_difference"`
	HalfWidth  float64    `json:"half_width"`
}

func judgePairs(list []pair) pairsOutcome {
	out := pairsOutcome{Pairs: len(list)}
	var logs, cpu []float64
	all := map[int]*[2]float64{}
	sum, n := 0.0, 0.0
	for i := range list {
		logs, cpu = append(logs, math.Log(list[i].Ratio)), append(cpu, math.Log(list[i].GearCPU/list[i].SingleCPU))
		for row, r := range list[i].residual {
			if all[row] == nil {
				all[row] = new([2]float64)
			}
			all[row][0] += r[0]
			all[row][1] += r[1]
		}
	}
	for _, r := range all {
		sum += r[0]
		n += r[1]
	}
	mean, lo, hi := report.MeanInterval(logs, .95)
	out.Ratio, out.Interval = math.Exp(mean), [2]float64{math.Exp(lo), math.Exp(hi)}
	mean, lo, hi = report.MeanInterval(cpu, .95)
	out.CPURatio, out.CPUBetween = math.Exp(mean), [2]float64{math.Exp(lo), math.Exp(hi)}
	out.Difference, out.HalfWidth = sum/n, 1.96*math.Sqrt(clustered(all))
	return out
}
