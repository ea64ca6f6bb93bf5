package main

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/sim"
)

// process is a kind of arrivals by name. All of them draw a run's requests from
// its seed alone and stretch them with the load: common random numbers.
type process struct {
	name string
	spec *formats.Arrivals // of a process in the simulator; nil if arrivals are from a trace
	// model makes the arrivals of model m of n at a rate, from a trace.
	model func(rng *rand.Rand, m, n int, rps float64, until time.Duration) arrivals.Source
}

// traces is the folder of recorded arrivals.
type traces string

// processes opens the kinds of arrivals that a list names: poisson, gamma:CV,
// azure (single invocations of Azure functions, sped up to the rate),
// azure-minutes (their counts, a minute played in a second) and twitter (counts
// per second). The last two are Poisson within each second, around a rate that
// is scaled so that the mean over the run is the one asked for.
func (t traces) processes(list string) ([]process, error) {
	var out []process
	for _, name := range strings.Split(list, ",") {
		p := process{name: name}
		var err error
		switch cv, isGamma := strings.CutPrefix(name, "gamma:"); {
		case name == "poisson":
			p.spec = &formats.Arrivals{Process: "poisson"}
		case isGamma:
			p.spec = &formats.Arrivals{Process: "gamma"}
			if p.spec.CV, err = strconv.ParseFloat(cv, 64); err != nil || !(p.spec.CV > 0) {
				err = fmt.Errorf("expected gamma:CV with a CV above 0")
			}
		case name == "azure":
			p.model, err = t.invocations()
		case name == "azure-minutes":
			p.model, err = t.minutes()
		case name == "twitter":
			p.model, err = t.seconds()
		default:
			err = fmt.Errorf("expected poisson, gamma:CV, azure, azure-minutes or twitter")
		}
		if err != nil {
			return nil, fmt.Errorf("-arrivals %q: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// config makes the configuration of one run of a scenario.
func (p *process) config(sc *sim.Scenario, run int) (sim.Config, error) {
	sc.Arrivals = p.spec
	if p.spec != nil {
		return sc.Config(run)
	}
	one := *sc
	one.Seed = seeded.Seed(sc.Seed, fmt.Sprintf("run/%d", run))
	n := len(sc.Tables.Models)
	sources := make([]arrivals.Source, n)
	for m := range sources {
		rng := seeded.New(one.Seed, "arrivals/"+sc.Tables.Models[m].Name)
		sources[m] = p.model(rng, m, n, sc.Rates[m]*sc.Load, sc.Duration)
	}
	return one.Replay(arrivals.Merge(sources...))
}

// columns reads a gzipped CSV file of the traces.
func (t traces) columns(name string) (header []string, rows [][]string, err error) {
	f, err := os.Open(filepath.Join(string(t), name))
	if err != nil {
		return nil, nil, fmt.Errorf("opening the traces (-data or INFERPLAN_DATA): %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if rows, err = csv.NewReader(z).ReadAll(); err != nil || len(rows) < 2 {
		return nil, nil, fmt.Errorf("reading %s: %d rows: %w", name, len(rows), err)
	}
	return rows[0], rows[1:], nil
}

// invocations are the arrival times of single invocations; functions go to
// models in turn. A run starts anywhere and goes round.
func (t traces) invocations() (func(*rand.Rand, int, int, float64, time.Duration) arrivals.Source, error) {
	header, rows, err := t.columns("azure_functions_2019_invocations_iluvatar_5min.csv.gz")
	if err != nil {
		return nil, err
	}
	at, fn := slices.Index(header, "t_s"), slices.Index(header, "func")
	if at < 0 || fn < 0 {
		return nil, fmt.Errorf("found the columns %v, expected t_s and func", header)
	}
	times := map[string][]float64{}
	for _, row := range rows {
		v, err := strconv.ParseFloat(row[at], 64)
		if err != nil {
			return nil, fmt.Errorf("column t_s: %w", err)
		}
		times[row[fn]] = append(times[row[fn]], v)
	}
	functions := sortedKeys(times)
	return func(rng *rand.Rand, m, n int, rps float64, until time.Duration) arrivals.Source {
		var mine []float64
		for i := m; i < len(functions); i += n {
			mine = append(mine, times[functions[i]]...)
		}
		slices.Sort(mine)
		return newCycle(rng, mine, int32(m), rps, until)
	}, nil
}

// cycle plays recorded times round and round, sped up to a rate.
type cycle struct {
	gaps  []float64 // mean 1
	next  int
	at    float64
	rps   float64
	until time.Duration
	model int32
}

func newCycle(rng *rand.Rand, times []float64, model int32, rps float64, until time.Duration) arrivals.Source {
	c := &cycle{rps: rps, until: until, model: model}
	span := times[len(times)-1] - times[0]
	for i := 1; i < len(times); i++ {
		c.gaps = append(c.gaps, (times[i]-times[i-1])*float64(len(times)-1)/span)
	}
	c.next = rng.IntN(len(c.gaps))
	return c
}

func (c *cycle) Next(r *arrivals.Request) bool {
	c.at += c.gaps[c.next]
	c.next = (c.next + 1) % len(c.gaps)
	at := time.Duration(c.at / c.rps * float64(time.Second))
	if !(c.rps > 0) || at >= c.until {
		return false
	}
	*r = arrivals.Request{ArrivedAt: at, Model: c.model}
	return true
}

// minutes are counts per minute of functions, which go to models in turn.
func (t traces) minutes() (func(*rand.Rand, int, int, float64, time.Duration) arrivals.Source, error) {
	header, rows, err := t.columns("azure_functions_2019_permin_10f_days01_09.csv.gz")
	if err != nil {
		return nil, err
	}
	counts := make([][]float64, len(header))
	for i, name := range header {
		if !strings.HasPrefix(name, "f_") {
			continue
		}
		for _, row := range rows {
			v, err := strconv.ParseFloat(row[i], 64)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", name, err)
			}
			counts[i] = append(counts[i], v)
		}
	}
	counts = slices.DeleteFunc(counts, func(c []float64) bool { return c == nil })
	return func(rng *rand.Rand, m, n int, rps float64, until time.Duration) arrivals.Source {
		sums := make([]float64, len(rows))
		for i := m; i < len(counts); i += n {
			for k, v := range counts[i] {
				sums[k] += v
			}
		}
		return newVarying(rng, sums, int32(m), rps, until)
	}, nil
}

// seconds are counts per second. The source lacks some minutes of every day.
func (t traces) seconds() (func(*rand.Rand, int, int, float64, time.Duration) arrivals.Source, error) {
	_, rows, err := t.columns("twitter_2021_08_persec_days01_15.csv.gz")
	if err != nil {
		return nil, err
	}
	var counts []float64
	for _, row := range rows {
		v, err := strconv.ParseFloat(row[0], 64)
		if err != nil {
			return nil, fmt.Errorf("counts per second: %w", err)
		}
		if v > 0 {
			counts = append(counts, v)
		}
	}
	return func(rng *rand.Rand, m, _ int, rps float64, until time.Duration) arrivals.Source {
		return newVarying(rng, counts, int32(m), rps, until)
	}, nil
}

// varying is a Poisson process whose rate follows a window of counts, one a
// second, with the mean asked for. More load puts the same points closer.
type varying struct {
	rng   *rand.Rand
	ends  []float64 // requests expected by the end of each second, per request/s asked
	sum   float64   // of unit gaps so far
	rps   float64
	until time.Duration
	model int32
}

func newVarying(rng *rand.Rand, counts []float64, model int32, rps float64, until time.Duration) arrivals.Source {
	n := max(1, int(math.Ceil(until.Seconds())))
	v := &varying{rng: rng, rps: rps, until: until, model: model}
	var window []float64
	total := 0.0
	for total == 0 { // a window without any request says nothing
		first := rng.IntN(max(1, len(counts)-n))
		window = counts[first:min(first+n, len(counts))]
		total = 0
		for _, c := range window {
			total += c
		}
	}
	end := 0.0
	for _, c := range window {
		end += c * float64(len(window)) / total
		v.ends = append(v.ends, end)
	}
	return v
}

func (v *varying) Next(r *arrivals.Request) bool {
	if !(v.rps > 0) {
		return false
	}
	v.sum += v.rng.ExpFloat64()
	want := v.sum / v.rps
	i := sort.SearchFloat64s(v.ends, want)
	if i == len(v.ends) {
		return false
	}
	from := 0.0
	if i > 0 {
		from = v.ends[i-1]
	}
	at := time.Duration((float64(i) + (want-from)/(v.ends[i]-from)) * float64(time.Second))
	if at >= v.until {
		return false
	}
	*r = arrivals.Request{ArrivedAt: at, Model: v.model}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
