// Go's net/http: requests side by side, a body of unknown length in chunks, and one that waits for 100 Continue.
// Usage: go run net_http.go URL
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const path = "/v1/models/half_plus_two:predict"

type reply struct {
	Predictions []float64 `json:"predictions"`
}

var client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, ExpectContinueTimeout: 5 * time.Second}}

func post(path string, body io.Reader, expect bool) (int, reply) {
	request, err := http.NewRequest("POST", os.Args[1]+path, body)
	fail(err)
	request.Header.Set("Content-Type", "application/json")
	if expect {
		request.Header.Set("Expect", "100-continue")
	}
	answer, err := client.Do(request)
	fail(err)
	defer answer.Body.Close()
	var document reply
	fail(json.NewDecoder(answer.Body).Decode(&document))
	return answer.StatusCode, document
}

func fail(err error) {
	if err != nil {
		panic(err)
	}
}

// A reader whose length net/http cannot know, so that it sends chunks.
func unknown(text string) io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }

func main() {
	const count = 200
	predictions := make([]float64, count)
	var all sync.WaitGroup
	for number := range predictions {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			_, document := post(path, strings.NewReader(fmt.Sprintf(`{"instances": [%d]}`, number)), false)
			predictions[number] = document.Predictions[0]
		}(number)
	}
	all.Wait()
	rows := make([]string, 20000)
	for number := range rows {
		rows[number] = fmt.Sprint(number)
	}
	large := `{"instances": [` + strings.Join(rows, ",") + `]}`
	_, inChunks := post(path, unknown(large), false)
	_, waited := post(path, strings.NewReader(large), true)
	if inChunks.Predictions[19999] != waited.Predictions[19999] {
		panic("a body in chunks has another answer")
	}
	missing, _ := post("/v1/models/nobody:predict", strings.NewReader(`{"instances": [1]}`), false)
	malformed, _ := post(path, strings.NewReader(`{"instances": [`), false)
	fail(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"predictions": predictions, "missing": missing, "malformed": malformed,
		"last_of_large": waited.Predictions[19999],
	}))
}
