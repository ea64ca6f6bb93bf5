package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

var passed int

func check(what string, ok bool, got ...any) {
	if !ok {
		fmt.Fprintln(os.Stderr, "FAIL", what, got)
		os.Exit(1)
	}
	passed++
}

// fails checks the error of a call.
func fails(what string, err error, status int, code string) {
	var e *openai.Error
	check(what, errors.As(err, &e) && e.StatusCode == status && e.Code == code, err)
}

// The arguments are the base URL and the key.
func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := openai.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey(os.Args[2]), option.WithMaxRetries(0))
	answers(ctx, &client)
	wide(ctx, &client)
	refusals(ctx, &client)
	aborts(ctx, &client)
	batches(ctx, &client)
	fmt.Printf("openai-go: %d checks passed\n", passed)
}

var chat = openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}

func prompt(text string, tokens int64) openai.CompletionNewParams {
	return openai.CompletionNewParams{Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(text)}, MaxTokens: openai.Int(tokens)}
}

func answers(ctx context.Context, c *openai.Client) {
	models, err := c.Models.List(ctx)
	check("models", err == nil && len(models.Data) > 0 && models.Data[0].ID == "m", err)
	whole, err := c.Completions.New(ctx, prompt("hello", 9))
	check("completion", err == nil && len(whole.Choices[0].Text) == 9 && whole.Usage.CompletionTokens == 9, err)
	text := ""
	parts := c.Completions.NewStreaming(ctx, prompt("hello", 9))
	for parts.Next() {
		text += parts.Current().Choices[0].Text
	}
	check("streamed completion", parts.Err() == nil && len(text) == 9, text, parts.Err())
	one, err := c.Chat.Completions.New(ctx, chat)
	check("chat", err == nil && len(one.Choices[0].Message.Content) == 12 && one.Choices[0].FinishReason == "length", err)
	with := chat
	with.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(ctx, with)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		check("chunk", sum.AddChunk(stream.Current()))
	}
	check("streamed chat", stream.Err() == nil && sum.Choices[0].Message.Content == one.Choices[0].Message.Content, stream.Err())
	check("usage of a stream", sum.Usage.CompletionTokens == 12 && sum.Usage.TotalTokens > 12, sum.Usage)
}

// wide asks for answers that are more than a text: calls of tools, probabilities, two of
// them.
func wide(ctx context.Context, c *openai.Client) {
	tools := chat
	tools.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "look_up"})}
	one, err := c.Chat.Completions.New(ctx, tools)
	check("tool call", err == nil && one.Choices[0].FinishReason == "tool_calls" && one.Choices[0].Message.ToolCalls[0].Function.Name == "look_up" && json.Valid([]byte(one.Choices[0].Message.ToolCalls[0].Function.Arguments)), err)
	stream := c.Chat.Completions.NewStreaming(ctx, tools)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		check("chunk", sum.AddChunk(stream.Current()))
	}
	check("streamed tool call", stream.Err() == nil && sum.Choices[0].Message.ToolCalls[0].ID == "call_0" && json.Valid([]byte(sum.Choices[0].Message.ToolCalls[0].Function.Arguments)), stream.Err())
	two := chat
	two.N, two.Logprobs = openai.Int(2), openai.Bool(true)
	one, err = c.Chat.Completions.New(ctx, two)
	check("two answers with logprobs", err == nil && len(one.Choices) == 2 && len(one.Choices[1].Logprobs.Content) == 12 && one.Usage.CompletionTokens == 24, err)
	stream = c.Chat.Completions.NewStreaming(ctx, two)
	sum = openai.ChatCompletionAccumulator{}
	for stream.Next() {
		check("chunk", sum.AddChunk(stream.Current()))
	}
	check("two streamed answers", stream.Err() == nil && len(sum.Choices) == 2 && len(sum.Choices[1].Message.Content) == 12 && len(sum.Choices[0].Logprobs.Content) == 12, stream.Err())
}

func refusals(ctx context.Context, c *openai.Client) {
	unknown := prompt("x", 1)
	unknown.Model = "none"
	_, err := c.Completions.New(ctx, unknown)
	fails("unknown model", err, 404, "model_not_found")
	several := prompt("x", 1)
	several.BestOf = openai.Int(3)
	_, err = c.Completions.New(ctx, several)
	fails("bad value", err, 400, "unsupported_value")
	_, err = c.Completions.New(ctx, prompt("refuse", 1))
	fails("overload", err, 429, "overload")
	var e *openai.Error
	check("when to come again", errors.As(err, &e) && e.Response.Header.Get("Retry-After") == "2", err)
	_, err = c.Completions.New(ctx, prompt("too long", 1))
	fails("error of a server", err, 400, "context_length_exceeded")
	_, err = c.Models.List(ctx, option.WithAPIKey("another"))
	fails("wrong key", err, 401, "unauthenticated")
}

func aborts(ctx context.Context, c *openai.Client) {
	short, stop := context.WithCancel(ctx)
	stream := c.Completions.NewStreaming(short, prompt("abort", 100000))
	check("a stream begins", stream.Next(), stream.Err())
	id := stream.Current().ID
	stop()
	stream.Close()
	var state struct{ Status string }
	for range 100 {
		if err := c.Get(ctx, "completions/"+id, nil, &state); err != nil || state.Status == "cancelled" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	check("abort", state.Status == "cancelled", state)
}

func batches(ctx context.Context, c *openai.Client) {
	var in strings.Builder
	for i := range 20 {
		fmt.Fprintf(&in, `{"custom_id":"g%d","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"line %d"}}`+"\n", i, i)
	}
	file, err := c.Files.New(ctx, openai.FileNewParams{File: openai.File(strings.NewReader(in.String()), "in.jsonl", "application/jsonl"), Purpose: openai.FilePurposeBatch})
	check("file", err == nil && file.Bytes == int64(in.Len()), err)
	b, err := c.Batches.New(ctx, openai.BatchNewParams{InputFileID: file.ID, Endpoint: "/v1/completions", CompletionWindow: "24h"})
	for err == nil && b.Status != "completed" && b.Status != "failed" {
		time.Sleep(20 * time.Millisecond)
		b, err = c.Batches.Get(ctx, b.ID)
	}
	check("batch", err == nil && b.Status == "completed" && b.RequestCounts.Completed == 20, err)
	content, err := c.Files.Content(ctx, b.OutputFileID)
	check("output", err == nil, err)
	defer content.Body.Close()
	text, err := io.ReadAll(content.Body)
	check("results", err == nil && bytes.Count(text, []byte("\n")) == 20, err)
	n := 0
	for list := c.Batches.ListAutoPaging(ctx, openai.BatchListParams{Limit: openai.Int(1)}); list.Next(); {
		n++
	}
	check("list of batches", n >= 1, n)
	gone, err := c.Files.Delete(ctx, file.ID)
	check("delete", err == nil && gone.Deleted, err)
}
