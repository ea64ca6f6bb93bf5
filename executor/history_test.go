package executor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
)

// counted are the values of all series that only grow.
func counted(t testing.TB, x *Executor) map[string]float64 {
	t.Helper()
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[name] = m.Counter.GetValue()
			case dto.MetricType_HISTOGRAM:
				out[name] = float64(m.Histogram.GetSampleCount())
				below := uint64(0)
				for _, b := range m.Histogram.Bucket {
					out[fmt.Sprint(name, " le=", b.GetUpperBound())] = float64(b.GetCumulativeCount())
					if b.GetCumulativeCount() < below {
						t.Errorf("%s: a bucket has less than the one below it", name)
					}
					below = b.GetCumulativeCount()
				}
			}
		}
	}
	return out
}

// Counters, statistics and the report are of all plans of the process; no counter goes
// back while plans change under load.
func TestTotalsOutliveSwitches(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true))
	plans := []*formats.Plan{pooledPlan(time.Millisecond, 2, patient+time.Second), classPlan(patient, patient), onePlan(2*time.Millisecond, 2, 2, patient)}
	var mu sync.Mutex
	before := map[string]float64{}
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		now := counted(t, x)
		for name, v := range before {
			if now[name] < v {
				t.Errorf("%s went from %g to %g", name, v, now[name])
			}
		}
		before = now
	}
	sent := 0
	all := openLoop(x, 0, 1, 200, func() {
		for i, p := range plans {
			until(func() bool {
				return x.core.Load().ServedModels.Models[0].Stats.Statistics().Inference.Success.Count >= 10
			})
			stop, looked := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(looked)
				for {
					look()
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			if err := x.Reload(context.Background(), p, strings.Repeat(fmt.Sprint(i+1), 64)); err != nil {
				t.Error(err)
			}
			close(stop)
			<-looked
		}
	})
	for _, a := range all {
		if a.how == "served" {
			sent++
		}
	}
	look()
	in := 0.0
	for name, v := range before {
		if strings.HasPrefix(name, "inferplan_requests_total") {
			in += v
		}
	}
	r := x.Report()
	statistics := x.Statistics("m", "")
	if sent != len(all) || int(in) != sent || r.Requests != int64(sent) || r.Completed != int64(sent) || len(statistics) != 1 || statistics[0].Inference.Success.Count != uint64(sent) {
		t.Errorf("%d requests, %d served; counters have %g, the report %d, statistics %+v", len(all), sent, in, r.Requests, statistics)
	}
	sum := int64(0)
	for _, p := range r.Plans {
		sum += p.Requests
	}
	if len(r.Plans) != 4 || sum != r.Requests || r.Plans[3].SHA256 != strings.Repeat("3", 64) || r.Plans[1].Kind != formats.PlanPool || r.Plans[2].StartUS < r.Plans[1].StartUS {
		t.Errorf("%d parts with %d requests, expected 4 with %d: %+v", len(r.Plans), sum, r.Requests, r.Plans)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := document.WriteFile(filepath.Join(t.TempDir(), "report.json"), r); err != nil {
		t.Error(err)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

// A report has parts of the latest plans only, and totals of all.
func TestReportOfManySwitches(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 1, 1, patient), replayOptions(true))
	x.history.maxReports = 4
	for i := range x.history.maxReports + 5 {
		if i < 3 {
			if _, err := x.Infer(context.Background(), sample(x, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Reload(context.Background(), onePlan(time.Millisecond, 1, 1, patient), ""); err != nil {
			t.Fatal(err)
		}
	}
	r := x.Report()
	if len(r.Plans) != x.history.maxReports+1 || r.Requests != 3 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "the first 5 plans") {
		t.Errorf("%d parts, %d requests, %q", len(r.Plans), r.Requests, r.Warnings)
	}
}

// Histograms with other edges add up to counts that grow from edge to edge.
func TestHistogramsOfOtherEdges(t *testing.T) {
	bucket := func(edge float64, n uint64) *dto.Bucket {
		return &dto.Bucket{UpperBound: &edge, CumulativeCount: &n}
	}
	n, m, sum, more := uint64(9), uint64(4), 1.5, 0.5
	to := &dto.Histogram{SampleCount: &n, SampleSum: &sum, Bucket: []*dto.Bucket{bucket(1, 2), bucket(3, 5), bucket(math.Inf(1), 9)}}
	addHistogram(to, &dto.Histogram{SampleCount: &m, SampleSum: &more, Bucket: []*dto.Bucket{bucket(2, 1), bucket(3, 3), bucket(4, 4), bucket(math.Inf(1), 4)}})
	got := ""
	for _, b := range to.Bucket {
		got += fmt.Sprint(b.GetUpperBound(), ":", b.GetCumulativeCount(), " ")
	}
	if want := "1:2 2:3 3:8 4:9 +Inf:13 "; got != want || to.GetSampleCount() != 13 || to.GetSampleSum() != 2 {
		t.Errorf("%s, %d, %g, expected %s", got, to.GetSampleCount(), to.GetSampleSum(), want)
	}
}

// losing starts workers of which the next is killed at once where a file lies.
func losing(t *testing.T, o Options) (Options, string) {
	file := filepath.Join(t.TempDir(), "kill")
	o.Command = []string{"/bin/sh", "-c", `if [ -e "` + file + `" ]; then rm "` + file + `"; kill -9 $$; fi; exec "$0" "$@"`, os.Args[0]}
	return o, file
}

// A switch that fails because a worker is lost is tried again; one that fails because of
// the plan is not. A gauge tells whether the file is what is in force.
func TestFailedSwitchIsTriedAgain(t *testing.T) {
	o, lost := losing(t, replayOptions(false))
	s, path := serve(t, onePlan(time.Millisecond, 1, 1, patient), o)
	differs := func() bool {
		_, text := s.get(t, "http://"+s.Metrics+"/metrics")
		return strings.Contains(text, "\ninferplan_plan_file_differs 1\n")
	}
	hup := func() {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if differs() {
		t.Error("the file differs from the start")
	}
	writePlan(t, path, onePlan(2*time.Millisecond, 1, 1, patient))
	if !differs() {
		t.Error("a file that was changed does not differ")
	}
	if err := os.WriteFile(lost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hup()
	if err := <-s.reloaded; !errors.Is(err, worker.ErrGone) {
		t.Errorf("the first switch: %v, expected that a worker is gone", err)
	}
	if !differs() {
		t.Error("after a failure the file does not differ")
	}
	select {
	case err := <-s.reloaded:
		if err != nil {
			t.Errorf("the second try: %v", err)
		}
	case <-time.After(patient):
		t.Fatal("no second try")
	}
	if differs() {
		t.Error("after the second try the file differs")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	hup()
	if err := <-s.reloaded; err == nil {
		t.Error("half a plan came into force")
	}
	select {
	case err := <-s.reloaded:
		t.Errorf("half a plan was tried again: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if !differs() {
		t.Error("half a plan does not differ")
	}
}
