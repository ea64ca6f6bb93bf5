package calls_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"time"

	"inferplan/executor/calls"
	"inferplan/formats/arrivals"
	form "inferplan/formats/calls"
	"inferplan/policy/workflow"
	"inferplan/sim"
	simulated "inferplan/sim/calls"
	"inferplan/testkit/workflows"
)

// One program runs in virtual time and against a server. In the simulator it is a
// request of DEBATE on four devices, whose agents agree with a chance of .45 in each
// round.
func ExampleClient_Run() {
	program := func(model string) form.Program {
		return func(s form.Session) (form.Outputs, error) {
			var agents []form.Handle
			for round := 1; ; round++ {
				var next []form.Handle
				for i := range 3 {
					h, err := s.Enqueue(form.Call{Model: model, Reads: agents, Inputs: map[string]any{"agent": i}})
					if err != nil {
						return nil, err
					}
					next = append(next, h)
				}
				agents = next
				out, err := s.Result(agents[0])
				if err != nil {
					return nil, err
				}
				if err := s.Wait(agents...); err != nil || out["text"] == "tea" || round == 3 {
					return form.Outputs{"rounds": round}, err
				}
			}
		}
	}

	m := newModels()
	server := httptest.NewServer(calls.NewHandler(m, nil, calls.Limits{}))
	defer server.Close()
	client := &calls.Client{URL: server.URL}
	out, err := client.Run(context.Background(), form.Open{Application: "debate"}, program("llm"))
	fmt.Println("served:", out["rounds"], err)

	t := workflows.Fleet{Devices: 4, Gigabytes: 40}.Tables()
	agree := func(_ *form.Call, rng *rand.Rand) []form.Outputs {
		if rng.Float64() < .45 {
			return []form.Outputs{{"text": "tea"}}
		}
		return []form.Outputs{{"text": "coffee"}}
	}
	apps := make([]simulated.Application, 3)
	apps[workflows.Debate].Program = program("llama-2-7b")
	control, err := simulated.NewControl(t, apps, agree, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	rounds := map[any]int{}
	control.Answered = func(_ int32, answer form.Outputs, _ error) { rounds[answer["rounds"]]++ }
	var list []arrivals.Request
	for i := range 100 {
		list = append(list, arrivals.Request{At: time.Duration(i) * time.Second, Model: workflows.Debate})
	}
	opt, _ := workflow.Named("dyorc")
	_, err = sim.Run(context.Background(), sim.Config{Tables: t, Policy: workflow.New(t, opt), Source: arrivals.Slice(list), Control: control,
		MoveTime: workflows.Move(t), NoReport: true, Verify: true})
	fmt.Println("simulated:", rounds[1]+rounds[2]+rounds[3], err)
	// Output:
	// served: 2 <nil>
	// simulated: 100 <nil>
}
