package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"inferplan/bench/served"
	"inferplan/executor/load"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// ending says how a request ended.
type ending struct {
	model  string
	took   time.Duration // from when it was due
	answer string        // "200", or code and reason
	lost   bool          // no answer, or one that is another request's
}

// openLoop sends requests to the models in turn at a fixed rate, whatever becomes of
// earlier ones, until during is done, and waits for all of them.
func openLoop(ctx context.Context, address string, models []string, rps float64, during func()) []ending {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	sending, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		during()
	}()
	moments := make([]time.Duration, int(rps*longestLoop.Seconds()))
	for i := range moments {
		moments[i] = time.Duration(float64(i) / rps * float64(time.Second))
	}
	start := time.Now()
	endings := make([]ending, len(moments))
	began, _ := served.Pace(sending, moments, func(i int, _ time.Time) {
		e := &endings[i]
		e.model = models[i%len(models)]
		e.answer, e.lost = ask(client, address, e.model, strconv.Itoa(i))
		e.took = time.Since(start) - moments[i]
	})
	return endings[:len(began)]
}

// longestLoop bounds the time of an open loop.
const longestLoop = 30 * time.Minute

// ask sends one request with a good input.
func ask(client *http.Client, address, model, id string) (answer string, lost bool) {
	tensor := `{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}`
	if model == "words" {
		tensor = `{"name":"x","shape":[1,8],"datatype":"INT64","data":[1,2,3,4,5,6,7,8]}`
	}
	resp, err := client.Post("http://"+address+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(`{"id":"`+id+`","inputs":[`+tensor+`]}`))
	if err != nil {
		return err.Error(), true
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), true
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Inferplan-Reason")), false
	}
	var got struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(body, &got); err != nil || got.ID != id {
		return fmt.Sprintf("200 with the id %q", got.ID), true
	}
	return "200", false
}

// tally counts answers in words.
type tally map[string]int

// String lists the answers with their counts.
func (t tally) String() string {
	var list []string
	for _, answer := range slices.Sorted(maps.Keys(t)) {
		list = append(list, fmt.Sprintf("%d %s", t[answer], strings.TrimSpace(answer)))
	}
	return strings.Join(list, ", ")
}

// add counts endings and returns how many requests were lost.
func (t tally) add(endings []ending) (lost int) {
	for _, e := range endings {
		t[e.answer]++
		if e.lost {
			lost++
		}
	}
	return lost
}

// behave is a client for each URL that keeps to the protocol: together they send at a rate, half of it to each model. If it is set,
// outcome is called with the outcome of every request, by one goroutine at a time.
func (a *attack) behave(ctx context.Context, urls []string, rate float64, length time.Duration, outcome func(load.Outcome)) ([]*load.Result, error) {
	models := []load.Model{{Name: "m", SLO: 800 * time.Millisecond}, {Name: "words", SLO: 800 * time.Millisecond}}
	each := rate / float64(len(urls)*len(models))
	results, errs := make([]*load.Result, len(urls)), make([]error, len(urls))
	var mu sync.Mutex
	var clients sync.WaitGroup
	for i, url := range urls {
		source := arrivals.Merge(arrivals.Poisson(seeded.New(a.seed, "arrivals "+url[:4]), 0, each, length), arrivals.Poisson(seeded.New(a.seed, "words "+url[:4]), 1, each, length))
		clients.Go(func() {
			results[i], errs[i] = load.Run(ctx, load.Config{URL: url, Models: models, Duration: length, Seed: a.seed, OnOutcome: func(o load.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				if outcome != nil {
					outcome(o)
				}
			}}, source)
		})
	}
	clients.Wait()
	return results, errors.Join(errs...)
}

// attained returns the share of requests in time, in %, and their number.
func attained(results []*load.Result) (share float64, requests int64) {
	inTime := int64(0)
	for _, r := range results {
		requests += r.Requests
		inTime += r.Completed - r.Late
	}
	return 100 * float64(inTime) / float64(max(requests, 1)), requests
}

// promised returns the rate that a plan promises, all models together.
func promised(plan *formats.Plan) (total float64) {
	for i := range plan.Deployment {
		total += plan.Deployment[i].RPS()
	}
	return total
}

// textRequest is a request for text, of a plan of queues.
type textRequest struct {
	prompt string
	tokens int
	store  bool   // the server keeps it until it is answered
	id     string // under which it may be sent again; may be empty
	key    string // of the client; may be empty
}

// send sends the request once, and returns the status, the headers and the body of the answer.
func (q *textRequest) send(ctx context.Context, address string) (status int, header http.Header, body []byte, err error) {
	content, err := json.Marshal(map[string]any{"model": textModel, "prompt": q.prompt, "max_tokens": q.tokens, "store": q.store})
	if err != nil {
		return 0, nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", bytes.NewReader(content))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if q.id != "" {
		req.Header.Set("Idempotency-Key", q.id)
	}
	if q.key != "" {
		req.Header.Set("Authorization", "Bearer "+q.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}
