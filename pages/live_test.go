package pages_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/served"
	"inferplan/pages"
)

// liveParts are what each kind of plan shows of itself.
var liveParts = map[string]served.Part{
	"pool": &served.Pool{Pipelines: []served.Pipeline{{Model: "small", Batch: 4, PromisedRPS: 80, Stages: []served.Stage{{DeviceKind: "L4", Up: 2, Devices: 3}, {DeviceKind: "V100", Up: 1, Devices: 1}}}}},
	"gear": &served.Gear{InForce: 1, Switches: 7, Gears: []served.GearState{{ToRPS: 50, Models: []string{"small", "large"}, Requests: 100, Answers: []int64{60, 40}}, {ToRPS: 100, Models: []string{"small"}, Requests: 10, Answers: []int64{10}}}},
	"flow": &served.Flow{Modules: []served.Module{{Module: "detect", Tasks: 120, Ended: 100, Dropped: 3, Waiting: 15, Running: 2, RunUS: document.Micros(12500 * time.Microsecond), Batch: 1.6}}},
	"queue": &served.Queue{Replans: served.Replans{Adopted: 4, ByDeadline: 1}, Instances: []served.QueueInstance{
		{Instance: "0:L4", Up: true, Model: "a", LoadingModel: "b", Running: 3, MaxRequests: 8, Groups: []served.QueueGroup{{Model: "a/fast", Requests: 5, StartS: .4, DueS: 2}, {Model: "b", Requests: 1, StartS: 9, DueS: -1.5}}},
		{Instance: "1:L4", MaxRequests: -1},
	}},
}

// liveState returns the state of a server of a plan of some models and devices, half of which keep their promise.
func liveState(kind string, models, devices int) *served.State {
	share := func(v float64) *float64 { return &v }
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	s := &served.State{
		At: at, Kind: kind, Policy: "reserve", PlanSHA256: strings.Repeat("ab12", 16), PlanAgeS: 61.4, UptimeS: 3723, Ready: true, OpenRequests: 4, WindowS: 60, DeviceWindowS: 30,
		Total: served.Model{
			PromisedRPS: 120, Waiting: 3, Running: 1, Window: served.Rates{OfferedRPS: 90.5, AnsweredRPS: 89, InTimeRPS: 88, DroppedRPS: .5, Attainment: share(.9832)},
			Counts: served.Counts{Requests: 5000, Completed: 4900, Late: 30, Dropped: 96},
		},
		DropsByReason: map[string]int64{"deadline": 90, "queue_full": 6}, DeviceKinds: []string{"L4", "V100"}, SampleInterval: 5,
		Events: []served.Event{{At: at.Add(-time.Second), Level: "warning", Text: "worker lost, device 0, kind <L4>", Times: 2}, {At: at.Add(-time.Minute), Level: "info", Text: "plan in force: plan.json", Times: 1}},
		Part:   liveParts[kind],
	}
	for i := range models {
		m := served.Model{Model: fmt.Sprintf("model-%d", i), PromisedRPS: 120 / float64(models), SLOUS: document.Micros(200 * time.Millisecond), PromisedAttainment: .99}
		if i%2 == 0 {
			m.Window = served.Rates{OfferedRPS: 45, AnsweredRPS: 44, InTimeRPS: 44, Attainment: share(1)}
		} else {
			m.Window = served.Rates{OfferedRPS: 45, AnsweredRPS: 44, InTimeRPS: 42, DroppedRPS: .5, Attainment: share(.9438)}
		}
		m.Counts = served.Counts{Requests: 2500, Completed: 2450, Late: 15, Dropped: 48}
		s.Models = append(s.Models, m)
	}
	for i := range devices {
		s.Devices = append(s.Devices, served.Device{Device: i, Kind: i % 2, Share: 1 + i%2, Up: i != 1, Busy: float64(i%10) / 10})
	}
	for i := range 120 {
		s.Samples = append(s.Samples, served.Sample{
			AgeS: float64(5 * (119 - i)), Rates: served.Rates{OfferedRPS: float64(80 + i%20), AnsweredRPS: float64(78 + i%20), InTimeRPS: float64(76 + i%18), Attainment: share(.95 + float64(i%5)/100)},
			Waiting: int64(i % 7), BusyByKind: []float64{.5 + float64(i%10)/100, .2}, Gauge: float64(i / 30 % 2),
		})
	}
	return s
}

// Every kind of plan has a page of its server, byte for byte, which loads nothing and runs one known script.
func TestLivePages(t *testing.T) {
	for _, kind := range formats.PlanKinds() {
		t.Run(kind, func(t *testing.T) {
			part := liveParts[kind]
			if part == nil || part.PlanKind() != kind || len(part.Tables()) == 0 {
				t.Fatalf("the kind has the part %v on the page of its server", part)
			}
			got, err := pages.LiveHTML(liveState(kind, 2, 3))
			if err != nil {
				t.Fatal(err)
			}
			if refs := references(got); len(refs) != 1 || refs[0] != "script" || !bytes.Contains(got, []byte("default-src 'none'")) {
				t.Errorf("the page loads %q, expected nothing beside its script", refs)
			}
			if external := regexp.MustCompile(`(?i)https?://|\bsrc=|\burl\(|@import`).FindAll(got, -1); len(external) > 0 {
				t.Errorf("the page names %q", external)
			}
			path := filepath.Join("testdata", kind, "live.html")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("-update writes it anew:\n%s", cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
			}
		})
	}
}

// The policy of the page allows the script that stands in it, and no other.
func TestLivePolicyAllowsItsScript(t *testing.T) {
	page, err := pages.LiveHTML(liveState("pool", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("%d scripts", len(scripts))
	}
	hash := sha256.Sum256(scripts[0][1])
	if want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"; !strings.HasSuffix(pages.LiveSecurityPolicy, want) {
		t.Errorf("the policy %q does not end with %q", pages.LiveSecurityPolicy, want)
	}
	if !strings.Contains(pages.LiveSecurityPolicy, "frame-ancestors 'none'") {
		t.Error("other pages may frame the page")
	}
	if !strings.HasPrefix(string(scripts[0][1]), fmt.Sprintf("const interval = %d;\n", served.Interval.Milliseconds())) || !bytes.Contains(scripts[0][1], []byte("AbortSignal.timeout(0.8 * interval)")) {
		t.Errorf("the script has no interval, or waits for ever: %s", scripts[0][1])
	}
	if strings.Contains(strings.Split(pages.LiveSecurityPolicy, "script-src")[1], "unsafe") {
		t.Error("the policy allows other scripts")
	}
}

// A plan of 200 models on 1,000 devices has a page as small as that of any plan, with those models that miss their promise.
func TestLivePageOfLargePlanIsSmall(t *testing.T) {
	s := liveState("queue", 200, 1000)
	queue := &served.Queue{}
	for range 1000 {
		queue.Instances = append(queue.Instances, served.QueueInstance{Instance: "0:L4", Groups: make([]served.QueueGroup, 10)})
	}
	s.Part = queue
	p, err := pages.LivePage(s)
	if err != nil {
		t.Fatal(err)
	}
	page, err := p.HTML()
	if err != nil {
		t.Fatal(err)
	}
	if len(page) > 100_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	text := string(p.Markdown())
	for _, want := range []string{"| all |", "170 other models", "500 x L4: 500 up; busy 40.00 %", "500 x V100: 499 up; busy 50.00 % on average, 10.00 % to 90.00 %", "100 models miss their promise", "The first 40 of 10000 rows"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(text, "| missed |"); n != 30 {
		t.Errorf("%d models that miss their promise are shown, expected 30", n)
	}
}

// A server that has just started has a page, without lines over time.
func TestLivePageOfNewServer(t *testing.T) {
	s := liveState("pool", 1, 1)
	s.Samples, s.Total.Window, s.Models[0].Window, s.DropsByReason, s.OpenRequests = s.Samples[:1], served.Rates{}, served.Rates{}, nil, 0
	p, err := pages.LivePage(s)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(p.Markdown()); !strings.Contains(text, "nothing was asked for") || !strings.Contains(text, "nothing ended") || strings.Contains(text, "ten minutes") {
		t.Errorf("the page of a new server is\n%s", text)
	}
}

// While all requests still wait or run, the page does not say that nothing was asked for.
func TestLivePageBeforeFirstAnswer(t *testing.T) {
	for _, tc := range []struct {
		offeredRPS float64
		want       string
	}{{.5, "30 requests came, and none ended; 32 have no answer yet"}, {0, "0 requests came, and none ended; 32 have no answer yet"}} {
		s := liveState("queue", 1, 1)
		s.Total.Window, s.Models[0].Window, s.OpenRequests = served.Rates{OfferedRPS: tc.offeredRPS}, served.Rates{OfferedRPS: tc.offeredRPS}, 32
		p, err := pages.LivePage(s)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(p.Markdown()); !strings.Contains(text, tc.want) || strings.Contains(text, "nothing was asked for") {
			t.Errorf("at %v rps the page lacks %q:\n%.300s", tc.offeredRPS, tc.want, text)
		}
	}
}

// The line of what is promised stands only where all models are promised the same.
func TestLivePromiseLineIsOfAllModels(t *testing.T) {
	s := liveState("pool", 2, 1)
	count := func() int {
		page, err := pages.LiveHTML(s)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(page, []byte("stroke-dasharray"))
	}
	same := count()
	s.Models[1].PromisedAttainment = .9
	if n := count(); same == 0 || n != same-1 {
		t.Errorf("%d dashed lines where the models are promised different shares, %d where the same", n, same)
	}
}
