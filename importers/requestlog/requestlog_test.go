package requestlog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/csvfile"
)

// readText reads a text as a file of another tool.
func readText(t testing.TB, text string, o Options) (*Log, error) {
	f, err := csvfile.New(strings.NewReader(text), "log")
	if err != nil {
		return nil, err
	}
	return Read(f, o)
}

// text writes a request for comparison.
func (q *Request) text() string {
	return fmt.Sprintf("%v %s %s %s %d+%d cached %d", q.ArrivedAt, q.Model, q.Class, q.Session, q.Prompt, q.Output, q.CachedTokens)
}

// Every sample is recognised, and its requests are those that the tool recorded. The samples are documented ones: the
// first rows of Azure's and BurstGPT's files, the example of Mooncake's README, those of the documentation of Apache,
// Envoy and AWS, and lines as the sources that layouts name write them.
func TestSamplesAreRead(t *testing.T) {
	for _, c := range []struct{ file, format, want, notes string }{
		{"azure.csv", "Azure", "0s    374+44 cached -1; 4.314579s    396+109 cached -1; 4.541877s    879+55 cached -1; 4.710427s    91+16 cached -1", ""},
		{"burstgpt.csv", "BurstGPT", "0s ChatGPT   472+18 cached -1; 40s ChatGPT   1087+230 cached -1; 1m53s GPT-4   417+276 cached -1; 1m55s ChatGPT   1360+647 cached -1", "left out 1 record"},
		{"mooncake.jsonl", "Mooncake", "0s    6955+52 cached 0; 3.053s    6472+26 cached 6144; 6.053s    6800+90 cached 6656", ""},
		{"dynamo_mooncake.jsonl", "Mooncake", "0s   a 1000+50 cached 0; 500.5ms   b 700+20 cached 512; 4s   a 1100+40 cached 1024", ""},
		{"dynamo.jsonl", "Dynamo", "0s qwen3-8b  root 300+40 cached 0; 2.5s qwen3-8b  root 390+25 cached 256", "left out 1 record"},
		{"profile_export.jsonl", "AIPerf", "0s   32ee4f33 550+9 cached -1; 2s   32ee4f33 601+12 cached -1", "left out 1 record"},
		{"blis.csv", "BLIS", "0s meta-llama/Llama-3.1-8B-Instruct batch  512+128 cached -1; 1s meta-llama/Llama-3.1-8B-Instruct interactive  456+64 cached 200; 3s meta-llama/Llama-3.1-8B-Instruct interactive  500+80 cached 200", ""},
		{"combined.log", "Combined", "0s resnet   0+0 cached -1; 3s resnet   0+0 cached -1; 7s bert   0+0 cached -1", ""},
		{"envoy.log", "Envoy", "0s resnet   0+0 cached -1; 310ms resnet   0+0 cached -1", "left out 1 request whose path names no model"},
		{"envoy.jsonl", "Envoy in JSON", "0s resnet   0+0 cached -1; 800ms bert-base   0+0 cached -1", "left out 1 request"},
		{"alb.log", "Load Balancer", "0s resnet   0+0 cached -1; 14.822641s bert   0+0 cached -1", "left out 1 request"},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		log, err := readText(t, string(data), Options{})
		if err != nil || log == nil {
			t.Errorf("%s: %v, %v", c.file, log, err)
			continue
		}
		var list []string
		for i := range log.Requests {
			list = append(list, log.Requests[i].text())
		}
		if got := strings.Join(list, "; "); got != c.want {
			t.Errorf("%s: found\n%s\nexpected\n%s", c.file, got, c.want)
		}
		if !strings.Contains(log.Format, c.format) || Recognize(data) != log.Format || !strings.Contains(strings.Join(log.Notes, "; "), c.notes) || (c.notes == "") != (log.Notes == nil) {
			t.Errorf("%s: %s, recognised as %q, notes %q", c.file, log.Format, Recognize(data), log.Notes)
		}
	}
}

// Entries that the documentation of proxies describes beside their examples are read by the layout of their own log: without a target, closed
// connections, requests that are no HTTP, hosts before addresses, and fields that came later.
func TestUnusualEntriesOfLogs(t *testing.T) {
	const behind = ` "Root=1-5" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234`
	for _, c := range []struct{ line, tool, time, path, status string }{
		{`http 2018-11-30T22:23:00.186641Z app/lb/5 192.168.131.39:2817 - 0.000 0.001 0.000 200 200 34 366 "GET http://a.com:80/v2/models/m/infer HTTP/1.1" "curl/7" - - arn:a` + behind, "Load Balancer", "2018-07-02T22:22:48.364000Z", `http://a.com:80/v2/models/m/infer`, "200"},
		{`wss 2018-07-02T22:23:00.186641Z app/lb/5 10.0.0.140:44244 10.0.0.171:8010 0.000 0.001 0.000 101 101 218 786 "GET https://10.0.0.30:443/ HTTP/1.1" "-" ECDHE TLSv1.2 arn:a` + behind, "Load Balancer", "2018-07-02T22:22:48.364000Z", `https://10.0.0.30:443/`, "101"},
		{`http 2018-11-30T22:23:00.186641Z app/lb/5 192.168.131.39:2817 - -1 -1 -1 400 - 0 0 "- http://a.com:80- -" "-" - - -` + behind, "Load Balancer", "2018-07-02T22:22:48.364000Z", `http://a.com:80-`, "400"},
		{`[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 0 DC 0 0 5 - "-" "-" "cc21" "-" "-"`, "Envoy", "2016-04-15T20:17:00.310Z", ``, "0"},
		{`a.com 10.0.0.7 - - [10/Oct/2000:13:55:36 -0700] "POST /v2/models/m/infer HTTP/1.1" 200 -`, "Combined", "10/Oct/2000:13:55:36 -0700", `/v2/models/m/infer`, "200"},
		{`10.0.0.7 - a b [10/Oct/2000:13:55:36 -0700] "GET /a?q=\"x\" HTTP/1.1" 200 5 "-" "a \"b\""`, "Combined", "10/Oct/2000:13:55:36 -0700", `/a?q=\"x\"`, "200"},
		{`10.0.0.7 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -`, "", "", ``, ""},
		{`10.0.0.7 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 150 "-" "-"`, "", "", ``, ""},
	} {
		l := findLayout([]byte(c.line))
		if (l == nil) != (c.tool == "") {
			t.Errorf("%s: %v, want one of %s", c.line, l, c.tool)
		}
		if l == nil {
			continue
		}
		f, err := csvfile.New(strings.NewReader(c.line), "log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := eachRecord(f, l, func(r *record) error {
			at, _ := r.text(l.time)
			path, _ := r.text(l.path)
			status, _ := r.text(l.status)
			if !strings.Contains(l.name, c.tool) || at != c.time || path != c.path || status != c.status {
				t.Errorf("%s: %s at %s of %s with %s, want %v", c.line, l.name, at, path, status, c)
			}
			_, err := l.parseTime(at)
			return err
		}); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
	}
}

// Counters of vLLM have a series for each engine and reason, and those of Triton for failures, too: requests of a model add up.
func TestCountersOfServersAddUp(t *testing.T) {
	series := func(labels, last string) string {
		return `{"metric": {` + labels + `}, "values": [[1000, "0"], [1010, "` + last + `"]]}`
	}
	text := `{"status": "success", "data": {"resultType": "matrix", "result": [` + strings.Join([]string{
		series(`"__name__": "vllm:request_success_total", "model_name": "a", "engine": "0", "finished_reason": "stop"`, "10"),
		series(`"__name__": "vllm:request_success_total", "model_name": "a", "engine": "1", "finished_reason": "length"`, "20"),
		series(`"__name__": "nv_inference_request_success", "model": "b", "version": "1"`, "40"),
		series(`"__name__": "nv_inference_request_failure", "model": "b", "version": "1", "reason": "REJECTED"`, "5"),
	}, ",") + `]}}`
	log, err := readText(t, text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range log.Requests {
		counts[log.Requests[i].Model]++
	}
	if counts["a"] < 15 || counts["a"] > 45 || counts["b"] < 25 || counts["b"] > 65 {
		t.Errorf("%v", counts)
	}
}

// A byte order mark, and a first line longer than what files are recognised by, change nothing.
func TestMarksAndLongLines(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.*")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := readText(t, string(data), Options{Seed: 1})
		marked, markedErr := readText(t, "\ufeff"+string(data), Options{Seed: 1})
		if err != nil || markedErr != nil || fmt.Sprint(marked) != fmt.Sprint(plain) {
			t.Errorf("%s: %v, %v\n%v\n%v", path, err, markedErr, marked, plain)
		}
	}
	hashes := strings.Repeat("1,", 1<<16) + "2"
	for _, mark := range []string{"", "\ufeff"} {
		log, err := readText(t, mark+`{"timestamp": 5, "input_length": 7, "output_length": 3, "hash_ids": [`+hashes+"]}\n", Options{})
		if err != nil || log == nil || len(log.Requests) != 1 || log.Requests[0].Prompt != 7 {
			t.Errorf("%+v, %v", log, err)
		}
	}
}

// Requests in one whole second are spread within it, in the same way for the same seed.
func TestSecondsAreSpread(t *testing.T) {
	data, err := os.ReadFile("testdata/common.log")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, seed := range []uint64{1, 1, 2} {
		log, err := readText(t, string(data), Options{Seed: seed})
		if err != nil || len(log.Requests) != 3 {
			t.Fatalf("%+v, %v", log, err)
		}
		for _, note := range []string{"1 line that could not be read", "1 record", "1 request whose path", "spread"} {
			if !strings.Contains(strings.Join(log.Notes, "; "), note) {
				t.Errorf("notes %q lack %q", log.Notes, note)
			}
		}
		if a := log.Requests; a[0].Model != "resnet" || a[1].Model != "resnet" || a[2].Model != "bert" || a[1].ArrivedAt >= time.Second || a[2].ArrivedAt <= 0 {
			t.Errorf("%+v", a)
		}
		texts[fmt.Sprint(log.Requests)] = true
	}
	if len(texts) != 2 {
		t.Errorf("%d different logs of two seeds", len(texts))
	}
}

// Rates of several series of a model add up; a counter that begins anew counts on.
func TestPrometheusRatesAreDrawn(t *testing.T) {
	data, err := os.ReadFile("testdata/prometheus.json")
	if err != nil {
		t.Fatal(err)
	}
	log, err := readText(t, string(data), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, q := range log.Requests {
		counts[q.Model+fmt.Sprint(int(q.ArrivedAt/(15*time.Second)))]++
	}
	// resnet has 3, 4 and 2.5 requests a second in the intervals 0, 1 and 3; bert 30 and 15 requests in intervals that begin .5 s later.
	if counts["resnet0"] != 45 || counts["resnet1"] != 60 || counts["resnet2"] != 0 || counts["resnet3"] < 37 || counts["bert0"] != 0 || counts["bert1"]+counts["bert2"]+counts["bert3"] != 45 {
		t.Errorf("%v", counts)
	}
	if !log.IsDrawn || log.HasTokens || Recognize(data) != prometheusName {
		t.Errorf("%+v", log)
	}
}

// A counter loses nothing where values are missing, and needs no more than two of them.
func TestPrometheusCountersWithGaps(t *testing.T) {
	const other = `,{"metric":{"model":"b"},"values":[[0,"0"],[15,"0"]]}`
	for _, c := range []struct {
		values, other string
		want          [3]int // requests in each minute from the first rate on
	}{
		{`[15,"10"],[75,"70"]`, "", [3]int{60}},
		{`[0,"10"],[60,"70"],[180,"190"]`, "", [3]int{60, 60, 60}},
		{`[0,"10"],[15,"40"],[30,"NaN"],[75,"160"]`, "", [3]int{120, 30}},
		{`[0,"0"],[60,"60"],[120,"120"]`, other, [3]int{45, 60, 15}},
	} {
		text := `{"data":{"resultType":"matrix","result":[{"metric":{"__name__":"requests_total","model":"m"},"values":[` + c.values + `]}` + c.other + `]}}`
		log, err := readText(t, text, Options{Seed: 1})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got [3]int
		for _, q := range log.Requests {
			got[int(q.ArrivedAt/time.Minute)]++
		}
		if got != c.want {
			t.Errorf("%s: %v, expected %v", text, got, c.want)
		}
	}
}

// A series with a single value has no rate: the others are read, and a note names it. If none is left, the file is
// refused.
func TestPrometheusSeriesOfOneValueAreLeftOut(t *testing.T) {
	const short = `{"metric":{"model":"b"},"values":[[30,"5"]]}`
	text := `{"data":{"resultType":"matrix","result":[` + short + `,{"metric":{"model":"a"},"values":[[0,"1"],[60,"1"]]}]}}`
	log, err := readText(t, text, Options{Seed: 1})
	if err != nil || len(log.Requests) == 0 || !slices.Equal(log.Models(), []string{"a"}) || !slices.Contains(log.Notes, "left out 1 series of fewer than two values") {
		t.Errorf("%+v, %v", log, err)
	}
	text = `{"data":{"resultType":"matrix","result":[` + short + "," + short + `]}}`
	if _, err := readText(t, text, Options{Seed: 1}); err == nil || !strings.Contains(err.Error(), "found 2 series, none with two values, expected at least two times") {
		t.Error(err)
	}
}

func TestPathsAndModels(t *testing.T) {
	line := `1.2.3.4 - - [29/Nov/2026:06:25:24 +0000] "POST /api/resnet?x=1 HTTP/1.1" 200 184`
	for _, c := range []struct {
		flags Flags
		want  string
	}{{Flags{path: `^/api/(\w+)`}, "resnet"}, {Flags{Model: "m"}, "m"}, {Flags{path: `^/api/`, Model: "m"}, "m"}, {Flags{path: `^/api/(\w+)`, renames: []string{"r50=resnet"}}, "r50"}} {
		o, err := c.flags.Options()
		if err != nil {
			t.Fatal(err)
		}
		log, err := readText(t, line, o)
		if err != nil || len(log.Requests) != 1 || log.Requests[0].Model != c.want {
			t.Errorf("%+v: %+v, %v", c.flags, log, err)
		}
	}
	if _, err := readText(t, line, Options{}); err == nil || !strings.Contains(err.Error(), "1 request whose path names no model") {
		t.Error(err)
	}
	for _, flags := range []Flags{{path: "("}, {path: "/api/"}, {renames: []string{"a"}}, {renames: []string{"a=b", "c=b"}}} {
		if _, err := flags.Options(); err == nil {
			t.Errorf("%+v are taken", flags)
		}
	}
}

// The parts of a rotated log are one log; files of several tools are not.
func TestFilesAreReadTogether(t *testing.T) {
	log, err := ReadFiles([]string{"testdata/combined.log", "testdata/common.log"}, Options{Seed: 1})
	if err != nil || len(log.Requests) != 6 || log.Requests[0].Model != "resnet" || log.Requests[5].ArrivedAt < 20*365*24*time.Hour {
		t.Errorf("%+v, %v", log, err)
	}
	for _, other := range []string{"testdata/azure.csv", "testdata/prometheus.json", "flags.go"} {
		if _, err := ReadFiles([]string{"testdata/common.log", other}, Options{}); err == nil || !strings.Contains(err.Error(), "another file than testdata/common.log") {
			t.Errorf("%s: %v", other, err)
		}
	}
	if log, err := ReadFiles([]string{"flags.go"}, Options{}); log != nil || err != nil {
		t.Errorf("%v, %v", log, err)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,1\n":                                                                        `log:2:1: TIMESTAMP: found the text "soon"`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,x,1\n":                                                         "log:2:1: ContextTokens",
		"TIMESTAMP,ContextTokens,GeneratedTokens\n":                                                                                  "without a request",
		"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n{":                                                                "log:2:1: found a text that is no JSON",
		"{\"session_id\":\"a\",\"delay\":1,\"input_length\":1,\"output_length\":1}\n":                                                "found no time",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2e6"],[2,"9e6"]]}]}}`:                                   "rates that make 1.1e+07 requests",
		`{"data":{"resultType":"matrix","result":[]}}`:                                                                               "data.result[0]",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}}`:                                               "at least two",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[1,"3"]]}]}}`:                                       "after a later one",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"-2"],[2,"3"]]}]}}`:                                      "the rate -2",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"],[2,"3"]]}]}}`:                                       `the text "x"`,
		`{"data":{"resultType":"matrix","result":[{"metric":{"__name__":"a_total"},"values":[[1,"2"],[9e8,"3"],[900000001,"4"]]}]}}`: "900000000 steps of 1s",
		`{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,2],[2,"3"]]}]}}`:                                         "data.result[0]",
		"{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"tool_end\"}\n":                                                     "left out 1 record",
		"{\"timestamp\":1e300,\"input_length\":1,\"output_length\":1}\n":                                                             "log:1:1: timestamp",
		"Timestamp,Model,Request tokens,Response tokens\n1,a,1e99,2\n":                                                               "a whole number of tokens",
		"Timestamp,Model,Request tokens,Response tokens\n1,a\n":                                                                      "another number of columns",
	} {
		if _, err := readText(t, text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
	if log, err := readText(t, "a,b\n1,2\n", Options{}); log != nil || err != nil {
		t.Errorf("%v, %v", log, err)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 10 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data[:min(len(data), 1<<11)])) // short texts, of which a second tries many
	}
	small := &limits{requests: 1000, steps: 1000}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			return
		}
		log, err := readText(t, text, Options{limits: small})
		if err != nil || log == nil {
			return
		}
		last := time.Duration(0)
		for _, q := range log.Requests {
			if q.ArrivedAt < last || q.Prompt < 0 || q.Output < 0 || q.CachedTokens > q.Prompt {
				t.Fatalf("%+v after %v", q, last)
			}
			last = q.ArrivedAt
		}
	})
}
