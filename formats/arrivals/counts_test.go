package arrivals_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

func counts(t *testing.T, text string, opt arrivals.CountsOptions) []arrivals.Request {
	t.Helper()
	c, err := arrivals.NewCounts(strings.NewReader(text), "c.csv", seeded.New(1, "counts"), opt)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := arrivals.Collect(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(rs, func(a, b arrivals.Request) int { return int(a.ArrivedAt - b.ArrivedAt) }) {
		t.Error("the times are not in order")
	}
	return rs
}

// perInterval counts the requests of each interval.
func perInterval(rs []arrivals.Request, width time.Duration) []int {
	var out []int
	for _, r := range rs {
		for len(out) <= int(r.ArrivedAt/width) {
			out = append(out, 0)
		}
		out[r.ArrivedAt/width]++
	}
	return out
}

func TestCountsKeepEachInterval(t *testing.T) {
	rs := counts(t, "requests_per_second\n3\n0\n5\n", arrivals.CountsOptions{Interval: time.Second})
	if got := perInterval(rs, time.Second); !slices.Equal(got, []int{3, 0, 5}) {
		t.Errorf("got %v", got)
	}
	// A scale that gives fractions: 1.5 each becomes 2, 1, 2, 1.
	rs = counts(t, "count\n1\n1\n1\n1\n", arrivals.CountsOptions{Interval: time.Second, Scale: 1.5})
	if got := perInterval(rs, time.Second); !slices.Equal(got, []int{2, 1, 2, 1}) {
		t.Errorf("scaled: got %v", got)
	}
	// Rows may be missing, and time may start anywhere.
	rs = counts(t, "second,count\n100,2\n103,1\n", arrivals.CountsOptions{Interval: time.Second})
	if got := perInterval(rs, time.Second); !slices.Equal(got, []int{2, 0, 0, 1}) {
		t.Errorf("sparse: got %v", got)
	}
	// A rate is a count per second.
	rs = counts(t, "t_s,total_rate_rps,active_clients\n0,0.5,1\n600,0.25,1\n", arrivals.CountsOptions{Interval: 600 * time.Second})
	if got := perInterval(rs, 600*time.Second); !slices.Equal(got, []int{300, 150}) {
		t.Errorf("rates: got %v", got)
	}
	// One of several columns, and minutes that start anew each day.
	rs = counts(t, "day,minute,f_a,f_b\n1,0,4,1\n1,1,2,1\n2,0,1,9\n", arrivals.CountsOptions{Interval: time.Minute, Column: "f_a", Model: 3})
	if got := perInterval(rs, time.Minute); !slices.Equal(got, []int{4, 2, 1}) || rs[0].Model != 3 {
		t.Errorf("columns: got %v", got)
	}
	rs = counts(t, "count\n5\n5\n5\n", arrivals.CountsOptions{Interval: time.Second, End: 2 * time.Second})
	if len(rs) != 10 {
		t.Errorf("until: %d requests, want 10", len(rs))
	}
}

func TestCountsHaveTheirSpread(t *testing.T) {
	for _, c := range []struct{ cv, want float64 }{{1, 1}, {0, 1}, {0.5, 0.5}, {3, 3}} {
		rs := counts(t, "count\n100000\n", arrivals.CountsOptions{Interval: 100 * time.Second, CV: c.cv})
		var sum, sq float64
		for i := 1; i < len(rs); i++ {
			g := (rs[i].ArrivedAt - rs[i-1].ArrivedAt).Seconds()
			sum, sq = sum+g, sq+g*g
		}
		n := float64(len(rs) - 1)
		mean := sum / n
		if cv := math.Sqrt(sq/n-mean*mean) / mean; math.Abs(cv-c.want) > 0.05*c.want {
			t.Errorf("cv %v gives gaps of cv %.3f", c.cv, cv)
		}
	}
}

func TestCountsErrors(t *testing.T) {
	sec := arrivals.CountsOptions{Interval: time.Second}
	for _, c := range []struct {
		name, text string
		opt        arrivals.CountsOptions
		want       string
	}{
		{"interval", "count\n1\n", arrivals.CountsOptions{}, "expected a positive duration"},
		{"scale", "count\n1\n", arrivals.CountsOptions{Interval: 1, Scale: -1}, "the scale is -1"},
		{"minute as second", "requests_per_minute\n1\n", sec, "requests_per_minute: found an interval of 1s, expected 1m0s"},
		{"which", "f_a,f_b\n1,1\n", sec, "expected one column of counts, or the name of one of them"},
		{"no such column", "f_a,f_b\n1,1\n", arrivals.CountsOptions{Interval: 1, Column: "f_c"}, "found no column \"f_c\", expected one of f_a, f_b"},
		{"negative", "count\n1\n-1\n", sec, "c.csv:3:1: count: found the text \"-1\", expected a count of 0 or more"},
		{"infinite", "count\nInf\n", sec, "c.csv:2:1: count:"},
		{"huge", "count\n1e12\n", sec, "at most 10000000 requests per interval"},
		{"back", "second,count\n5,1\n5,1\n", sec, "c.csv:3:1: second: found the text \"5\", expected a start at least one interval of 1s after"},
		{"clients", "client,t_s,rate_rps\n1,0,1\n", sec, "one row per client"},
	} {
		src, err := arrivals.NewCounts(strings.NewReader(c.text), "c.csv", seeded.New(1, "c"), c.opt)
		if err == nil {
			_, err = arrivals.Collect(src, 0)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestParseSpread(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "uniform": 1, "gamma:2.5": 2.5, "gamma:1": 1} {
		if got, err := arrivals.ParseSpread(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"gamma", "gamma:", "gamma:0", "gamma:-1", "gamma:NaN", "gamma:1000", "poisson"} {
		if got, err := arrivals.ParseSpread(text); err == nil {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

func FuzzCounts(f *testing.F) {
	f.Add([]byte("requests_per_second\n3\n0\n5\n"), 1.5)
	f.Add([]byte("second,count\n100,2\n103,1\n"), 1.0)
	f.Add([]byte("t_s,total_rate_rps,active_clients\n0,0.5,1\n600,0.25,1\n"), 0.0)
	f.Fuzz(func(t *testing.T, data []byte, cv float64) {
		if len(data) > 1<<12 || bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			return
		}
		c, err := arrivals.NewCounts(bytes.NewReader(data), "c", seeded.New(1, "c"), arrivals.CountsOptions{Interval: time.Second, CV: cv, Scale: 1e-4})
		if err != nil {
			return
		}
		rs, _ := arrivals.Collect(c, 2000)
		for i := range rs {
			if rs[i].ArrivedAt < 0 || i > 0 && rs[i].ArrivedAt < rs[i-1].ArrivedAt {
				t.Fatalf("request %d at %d", i, rs[i].ArrivedAt)
			}
		}
	})
}

// dataFolder is the folder of public measurements and traces that tests may
// read; nothing of it is part of the repository.
func dataFolder(t testing.TB) string {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no data folder %s: set INFERPLAN_DATA to read the public traces", dir)
	}
	return dir
}

func TestPublicTraces(t *testing.T) {
	dir := dataFolder(t)
	for _, c := range []struct {
		file string
		opts []arrivals.TraceOption
		n    int
	}{
		{"azure_llm_2023_conv.csv.gz", nil, 19366},
		{"azure_llm_2023_code_first30min.csv.gz", nil, 5740},
		{"mooncake_fast25_conversation.csv.gz", []arrivals.TraceOption{arrivals.IgnoreOther()}, 12031},
		{"azure_functions_2019_invocations_iluvatar_5min.csv.gz", []arrivals.TraceOption{arrivals.IgnoreOther()}, 11868},
	} {
		src, err := arrivals.OpenTrace(filepath.Join(dir, "traces", c.file), []string{"m"}, c.opts...)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		rs, err := arrivals.Collect(src, 0)
		if err != nil || len(rs) != c.n {
			t.Errorf("%s: %d requests, want %d; %v", c.file, len(rs), c.n, err)
		}
		src.Close()
	}
	for _, c := range []struct {
		file string
		opt  arrivals.CountsOptions
	}{
		{"twitter_2021_08_persec_days01_15.csv.gz", arrivals.CountsOptions{Interval: time.Second}},
		{"worldcup98_permin_part1.csv.gz", arrivals.CountsOptions{Interval: time.Minute}},
		{"nasa_http_1995_permin.csv.gz", arrivals.CountsOptions{Interval: time.Minute, CV: 2}},
		{"azure_functions_2019_permin_10f_days01_09.csv.gz", arrivals.CountsOptions{Interval: time.Minute, Column: "f_2aec780b"}},
		{"servegen_m-mid_10min_firsthalf.csv.gz", arrivals.CountsOptions{Interval: 10 * time.Minute, Column: "total_rate_rps", Scale: 0.01}},
	} {
		src, err := arrivals.OpenCounts(filepath.Join(dir, "traces", c.file), seeded.New(1, c.file), c.opt)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		rs, err := arrivals.Collect(src, 100_000)
		if err != nil || len(rs) < 10_000 {
			t.Errorf("%s: %d requests, %v", c.file, len(rs), err)
		}
		src.Close()
	}
	gaps, err := filepath.Glob(filepath.Join(dir, "ppipe", "arrivals", "*.gz"))
	if err != nil || len(gaps) == 0 {
		t.Fatalf("no gaps: %v", err)
	}
	for _, path := range gaps[:min(len(gaps), 6)] {
		src, err := arrivals.OpenGaps(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if rs, err := arrivals.Collect(src, 0); err != nil || len(rs) < 100 {
			t.Errorf("%s: %d requests, %v", path, len(rs), err)
		}
		src.Close()
	}
}
