// Command client scrapes a URL once with the HTTP client of Prometheus and of programs that use exporter-toolkit. Its first argument is a file
// in the format of http_config. It prints the status, the format, and the number of metric families that it decoded.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/expfmt"
)

func scrape(file, url string) error {
	settings, _, err := config.LoadHTTPConfigFile(file)
	if err != nil {
		return err
	}
	client, err := config.NewClientFromConfig(*settings, "perf-exporter")
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	format, families := expfmt.ResponseFormat(response.Header), 0
	if response.StatusCode == http.StatusOK {
		for decoder := expfmt.NewDecoder(response.Body, format); ; families++ {
			if err := decoder.Decode(&dto.MetricFamily{}); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
		}
	}
	fmt.Println(response.StatusCode, format.FormatType() == expfmt.TypeProtoDelim, families)
	return nil
}

func main() {
	if err := scrape(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
