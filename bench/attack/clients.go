package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"inferplan/formats"
)

// shot is how a request ended.
type shot struct {
	model     string
	due, took time.Duration // since the start; from when it was due
	answer    string        // "200", or code and reason
	lost      bool          // no answer, or one that is another request's
}

// openLoop sends requests to the models in turn at a fixed rate, whatever becomes of
// earlier ones, until f is done, and waits for all of them.
func openLoop(address string, models []string, rps float64, f func(start time.Time)) []shot {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	ended := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(ended)
		f(start)
	}()
	var mu sync.Mutex
	var out []shot
	var wg sync.WaitGroup
	for i := 0; ; i++ {
		due := time.Duration(float64(i) / rps * float64(time.Second))
		select {
		case <-ended:
			wg.Wait()
			return out
		case <-time.After(time.Until(start.Add(due))):
		}
		wg.Go(func() {
			s := shot{model: models[i%len(models)], due: due}
			s.answer, s.lost = ask(client, address, s.model, strconv.Itoa(i))
			s.took = time.Since(start) - due
			mu.Lock()
			out = append(out, s)
			mu.Unlock()
		})
	}
}

// ask sends one request with a good input.
func ask(client *http.Client, address, model, id string) (answer string, lost bool) {
	tensor := `{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}`
	if model == "words" {
		tensor = `{"name":"x","shape":[1,8],"datatype":"INT64","data":[1,2,3,4,5,6,7,8]}`
	}
	resp, err := client.Post("http://"+address+"/v2/models/"+model+"/infer", "application/json", bytes.NewReader([]byte(`{"id":"`+id+`","inputs":[`+tensor+`]}`)))
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

// endings counts answers, and those that were lost.
func endings(shots []shot) (answers map[string]int, lost int) {
	answers = map[string]int{}
	for _, s := range shots {
		answers[s.answer]++
		if s.lost {
			lost++
		}
	}
	return answers, lost
}

// promised is the rate that a plan promises, all models together.
func promised(path string) (float64, error) {
	plan, err := formats.ReadPlan(path)
	if err != nil {
		return 0, err
	}
	var total float64
	for i := range plan.Deployment {
		total += plan.Deployment[i].RPS()
	}
	return total, nil
}

// settled waits until the server holds no request any more.
func (s *server) settled(ctx context.Context) error {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		m, err := s.scrape()
		if err == nil && sum(m, "inferplan_in_flight", "") == 0 {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("requests are still held: %w\n%s", err, strings.Join(s.lastWords(), "\n"))
		}
	}
}
