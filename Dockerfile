# One of the programs in cmd, as an image of one file:
#
#   docker build --build-arg PROGRAM=gateway -t sluice-gateway .
#   docker build --build-arg PROGRAM=worker -t sluice-worker .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG PROGRAM=gateway
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /program "./cmd/$PROGRAM"

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /program /program
USER 65532:65532
ENTRYPOINT ["/program"]
