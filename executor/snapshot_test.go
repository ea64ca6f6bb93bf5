package executor

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/live"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/served"
	"inferplan/pages"
	"inferplan/testkit/llm/fake"
)

// liveView is the page of servers in tests, as of plan serve.
var liveView = &live.View{Render: pages.LiveHTML, SecurityPolicy: pages.LiveSecurityPolicy}

// Every kind of plan shows a part of its own while it is served, with rows.
func TestEveryKindShowsItsPart(t *testing.T) {
	openers := map[string]func() *Executor{
		"pool": func() *Executor { return open(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true)) },
		"gear": func() *Executor {
			return open(t, gearPlan(1, time.Millisecond, 3*time.Millisecond), replayOptions(true))
		},
		"flow": func() *Executor {
			return open(t, split(patient, "feas", time.Millisecond, time.Millisecond), replayOptions(true))
		},
		"queue": func() *Executor {
			return openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Slots: 4}, nil).x
		},
	}
	for _, kind := range formats.PlanKinds() {
		if openers[kind] == nil {
			t.Errorf("no plan of kind %s is served here", kind)
			continue
		}
		x := openers[kind]()
		checkStateJSON(t, live.NewSampler(x.snapshot, &live.EventLog{}).State())
		s := x.snapshot()
		if s.Kind != kind || s.Part == nil || s.Part.PlanKind() != kind {
			t.Errorf("a plan of kind %s shows %+v", kind, s.Part)
			continue
		}
		if tables := s.Part.Tables(); len(tables) == 0 || len(tables[0].Rows) == 0 {
			t.Errorf("the part of kind %s has the tables %+v", kind, tables)
		}
		if len(s.Models) == 0 || len(s.Devices) == 0 || !slices.ContainsFunc(s.Devices, func(d live.DeviceCount) bool { return d.Up }) {
			t.Errorf("kind %s: models %+v, devices %+v", kind, s.Models, s.Devices)
		}
	}
}

// stateKeys matches the keys of JSON with what stands before their values.
var stateKeys = regexp.MustCompile(`"([^"]*)":(null)?`)

// checkStateJSON expects keys of small letters and empty lists in the JSON of the state of a server that nobody has asked.
func checkStateJSON(t *testing.T, state *served.State) {
	t.Helper()
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range stateKeys.FindAllStringSubmatch(string(data), -1) {
		if key[1] != strings.ToLower(key[1]) || key[2] != "" && key[1] != "attainment" {
			t.Errorf("kind %s: the state has %s", state.Kind, key[0])
		}
	}
	for _, want := range []string{`"samples":[]`, `"events":[]`, `"models":[{"model":`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("kind %s: the state lacks %s: %s", state.Kind, want, data)
		}
	}
}

// The page at / of a server has what the plan promises and what was measured. It is read-only, loads nothing, and stands behind
// the key where one is set; the JSON beside it has the same counts.
func TestServerShowsItsPage(t *testing.T) {
	ring, err := httplimit.NewKeyring(httplimit.Key{Token: doorKey, Name: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := serve(t, onePlan(2*time.Millisecond, 2, 1, patient), replayOptions(true), func(o *ServeOptions) {
		o.View, o.Door.Keys = liveView, ring
	})
	ask := func(method, path, key string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Metrics+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	for _, path := range []string{"/", "/live.json"} {
		if resp, body := ask("GET", path, ""); resp.StatusCode != 401 || strings.Contains(body, "Promised") {
			t.Errorf("%s without the key: %d, %s", path, resp.StatusCode, body)
		}
		if resp, _ := ask("POST", path, doorKey); resp.StatusCode != 405 {
			t.Errorf("POST %s: %d", path, resp.StatusCode)
		}
	}
	// A browser has the token as a password, which opens the pages alone.
	for _, tc := range []struct {
		path, password string
		status         int
	}{{"/", doorKey, 200}, {"/live.json", doorKey, 200}, {"/", doorKey + "x", 401}, {"/live.json", "", 401}, {"/metrics", doorKey, 401}, {"/rates", doorKey, 401}} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Metrics+tc.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("anybody", tc.password)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		isPage := tc.path == "/" || tc.path == "/live.json"
		if asks := strings.Contains(strings.Join(resp.Header.Values("WWW-Authenticate"), " "), "Basic realm="); resp.StatusCode != tc.status || asks != (isPage && tc.status == 401) {
			t.Errorf("%s with the password %q: %d, %q", tc.path, tc.password, resp.StatusCode, resp.Header.Values("WWW-Authenticate"))
		}
	}
	if resp, _ := ask("GET", "/other", doorKey); resp.StatusCode != 404 {
		t.Errorf("another path: %d", resp.StatusCode)
	}

	// Send requests, and look.
	const requests = 20
	for range requests {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.HTTP+"/v2/models/m/infer", strings.NewReader(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+doorKey)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %+v", err, resp)
		}
		resp.Body.Close()
	}
	var state struct {
		served.State
		Part served.Pool `json:"part"`
	}
	until := time.Now().Add(patient)
	for state.Total.Counts.Completed != requests { // a state is up to a second old
		_, body := ask("GET", "/live.json", doorKey)
		if err := json.Unmarshal([]byte(body), &state); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(until) {
			t.Fatalf("%d requests are not counted: %s", requests, body)
		}
	}
	m := state.Models[0]
	if m.Model != "m" || m.PromisedRPS != 100 || m.PromisedAttainment != .99 || m.SLOUS.D() != patient || m.Counts.Requests != requests || m.Window.OfferedRPS <= 0 || *m.Window.Attainment != 1 {
		t.Errorf("the model is %+v", m)
	}
	if len(state.Devices) != 1 || !state.Devices[0].Up || state.Devices[0].Busy <= 0 || state.Part.Pipelines[0].Stages[0].Up != 1 {
		t.Errorf("devices %+v, part %+v", state.Devices, state.Part)
	}
	resp, page := ask("GET", "/", doorKey)
	if policy := resp.Header.Get("Content-Security-Policy"); policy != pages.LiveSecurityPolicy || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("the policy is %q", policy)
	}
	for _, want := range []string{"<td>m</td>", `<td class="right">100.0</td>`, "<td>kept</td>", "99.00 %", "100.00 %", "1 of 1 L4", "plan in force: ", `<noscript><meta http-equiv="refresh"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "://") || strings.Contains(page, "src=") {
		t.Error("the page names something outside")
	}
}

// Counts of the page continue when another plan comes, and the log's messages stand in its events.
func TestPageContinuesOverPlans(t *testing.T) {
	s, path := serve(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true), func(o *ServeOptions) { o.View, o.WatchInterval = liveView, 10*time.Millisecond })
	before := drive(t, "http://"+s.HTTP, 100, 300*time.Millisecond, patient).Report.Requests
	writePlan(t, path, onePlan(2*time.Millisecond, 1, 2, patient))
	if err := <-s.reloaded; err != nil && !errors.Is(err, turn.ErrSwitched) {
		t.Fatal(err)
	}
	after := drive(t, "http://"+s.HTTP, 100, 300*time.Millisecond, patient).Report.Requests
	var state struct {
		served.State
		Part json.RawMessage `json:"part"`
	}
	for until := time.Now().Add(patient); state.Total.Counts.Requests < before+after && time.Now().Before(until); {
		_, body := s.get(t, "http://"+s.Metrics+"/live.json")
		if err := json.Unmarshal([]byte(body), &state); err != nil {
			t.Fatal(err)
		}
	}
	if n := state.Models[0].Counts.Requests; n != before+after || state.Total.Counts.Requests != n || len(state.Devices) != 2 {
		t.Errorf("%d requests and %d devices after another plan, expected %d and 2", n, len(state.Devices), before+after)
	}
	if !slices.ContainsFunc(state.Events, func(e served.Event) bool { return strings.HasPrefix(e.Text, "plan switched, preload ") }) {
		t.Errorf("the events are %+v", state.Events)
	}
}

// A device is busy while a long run lasts, and not only once it has ended.
func TestDeviceIsBusyDuringLongRun(t *testing.T) {
	const infer = 2 * time.Second
	x := open(t, onePlan(infer, 1, 1, patient), replayOptions(true))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		resp, err := x.Infer(t.Context(), sample(x, 1))
		if err != nil {
			t.Error(err)
			return
		}
		resp.Release()
	})
	for {
		s := x.snapshot()
		if s.Total.Completed > 0 {
			t.Fatalf("the device was busy for %v until its run had ended", s.Devices[0].BusyTime)
		}
		if s.Devices[0].BusyTime > infer/10 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
